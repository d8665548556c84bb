"""An NFS 3 client that keeps handles of files, for nfs.sh: asked by lines, it answers by lines."""
import ctypes
import errno
import sys

lib = ctypes.CDLL("libnfs.so.13")
lib.nfs_init_context.restype = ctypes.c_void_p
lib.nfs_get_error.restype = ctypes.c_char_p
lib.nfs_get_error.argtypes = [ctypes.c_void_p]
lib.nfs_mount.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
lib.nfs_open.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)]
lib.nfs_lseek.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]
lib.nfs_fstat64.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
lib.nfs_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p]
count = int(sys.argv[1])
context = ctypes.c_void_p(lib.nfs_init_context())
files = {}


def open_all():
    if lib.nfs_mount(context, b"127.0.0.1", b"/sinter") != 0:
        return "no mount: " + lib.nfs_get_error(context).decode()
    for number in range(1, count + 1):
        file = ctypes.c_void_p()
        if lib.nfs_open(context, b"/dir/file-%d" % number, 0, ctypes.byref(file)) != 0:
            return "no open: " + lib.nfs_get_error(context).decode()
        files[number] = file
    return "opened %d" % len(files)


def read_all():
    right = stale = 0
    for number, file in files.items():
        room = ctypes.create_string_buffer(100)
        lib.nfs_lseek(context, file, 0, 0, None)
        length = lib.nfs_read(context, file, 99, room)
        if length > 0 and room.value == b"content %d\n" % number:
            right += 1
        elif length < 0 and lib.nfs_fstat64(context, file, ctypes.create_string_buffer(512)) == -errno.ESTALE:
            # Of a failed read this library does not say the cause.
            stale += 1
        else:
            return "wrong: file %d: %d %r %r" % (number, length, room.value, lib.nfs_get_error(context))
    return "right %d stale %d" % (right, stale)


for line in sys.stdin:
    print(open_all() if line.strip() == "open" else read_all(), flush=True)
