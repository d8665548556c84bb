"""Another NFS 4 client's try to lock what the guest has locked: says "locked", "free", or what is in the way."""
import ctypes
import os

lib = ctypes.CDLL("libnfs.so.13")
lib.nfs_init_context.restype = ctypes.c_void_p
lib.nfs_get_error.restype = ctypes.c_char_p
lib.nfs_get_error.argtypes = [ctypes.c_void_p]
lib.nfs_set_version.argtypes = [ctypes.c_void_p, ctypes.c_int]
lib.nfs_mount.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
lib.nfs_open.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)]
lib.nfs_fcntl.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
lib.nfs_close.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
SET_LOCK, SHARED, UNLOCKED = 0, 0, 2


class Lock(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_short),
        ("whence", ctypes.c_short),
        ("process", ctypes.c_uint32),
        ("start", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
    ]


def lock(kind):
    return lib.nfs_fcntl(context, file, SET_LOCK, ctypes.byref(Lock(kind, os.SEEK_SET, 1, 0, 0)))


context = ctypes.c_void_p(lib.nfs_init_context())
file = ctypes.c_void_p()
lib.nfs_set_version(context, 4)
if lib.nfs_mount(context, b"127.0.0.1", b"/sinter") or lib.nfs_open(
    context, b"/dir/locked", os.O_RDONLY, ctypes.byref(file)
):
    print("not open:", lib.nfs_get_error(context).decode())
else:
    # A shared lock: this library can't open for writing what it may also read.
    if lock(SHARED) == 0:
        lock(UNLOCKED)
        print("free")
    else:
        error = lib.nfs_get_error(context).decode()
        print("locked" if "DENIED" in error else error)
    lib.nfs_close(context, file)
