#!/bin/busybox sh
# The first process of the guest: kernel clients of NFS and SMB put programs to work on what the host exports. What it does
# and finds goes to the second serial port, a line each; the host answers there when it is asked for something.
# From the kernel's command line: PROTOCOLS, and OPERATIONS for fsx.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
chmod 1777 /tmp
exec 3<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo
mnt=/mnt/dir

say() { echo "$*" >&3; }
refuse() { echo "$*" >&2; exit 1; }
ask() { # REQUEST: of the host, and wait for its end
    say "ask $*"
    read -r answer <&3
    [ "$answer" = done ] || refuse "the host says to $*: $answer"
}
# By its path: the shell has a smaller one within it.
as() { exec /bin/setpriv --reuid 1000 --regid 1000 --clear-groups "$@"; }
# Never behind `||` or `if`: within these the shell goes on after a command that fails.
step() { # NAME COMMAND...
    name=$1 && shift
    say "begin $protocol $name"
    (set -e; "$@") > /tmp/step.log 2>&1
    code=$?
    if [ $code = 0 ]; then say "end $protocol $name"; return; fi
    tail -n 30 /tmp/step.log | while read -r line; do say "| $line"; done
    dmesg | tail -n 10 | while read -r line; do say "| $line"; done
    say "failed $protocol $name"
}
restart_below() { # PROCESS: the server is killed and started while it is at work
    kill -0 "$1" || refuse "the process has ended before the server was restarted"
    ask restart "$protocol"
}

mounted() {
    case $protocol in
        nfs3) mount.nfs 10.0.2.2:/sinter /mnt -o vers=3,nolock,proto=tcp ;;
        nfs4*) mount.nfs 10.0.2.2:/sinter /mnt -o "vers=${protocol#nfs}" ;;
        smb) mount.cifs //10.0.2.2/sinter /mnt -o vers=3.1.1,username=guest,password=secret,uid=1000,gid=1000,hard,mfsymlinks,nobrl ;;
    esac
    (as mkdir "$mnt")
    (as sh -c "echo $protocol > $mnt/written")
    echo 3 > /proc/sys/vm/drop_caches
    [ "$(cat $mnt/written)" = "$protocol" ]
    ask content "$protocol"
}

cloned() {
    (as git clone -q /repository "$mnt/clone") & clone=$!
    sleep 2
    # While SMB's server is away, operations on names fail (EAGAIN): Linux 6.1 tries only those on open files again.
    if [ "$protocol" = smb ]; then wait $clone; clone=$$; fi
    restart_below $clone
    if [ $clone != $$ ]; then wait $clone; fi
    echo 3 > /proc/sys/vm/drop_caches
    (as git -C "$mnt/clone" fsck --strict)
    changed=$(as git -C "$mnt/clone" status --porcelain)
    [ -z "$changed" ] || refuse "another content: $changed"
}

compared() {
    (NO_COLOR=1 as fsx -f /fsx.toml -N "$OPERATIONS" -P /tmp "$mnt/fsx") & fsx=$!
    sleep 5
    # By SMB even an open file can be lost with the server (EBADF).
    if [ "$protocol" = smb ]; then wait $fsx; ask restart smb; return; fi
    restart_below $fsx
    wait $fsx
}

acked() { for half in 0 1; do echo "$(cat /tmp/acked-$half 2>/dev/null)"; done | sort -n | tail -n 1; }
looked() { found=$(as sqlite3 -cmd '.timeout 60000' "$mnt/db" "pragma integrity_check; select count(*) >= $told, count(*) = max(a) from t"); }
# Transactions until the program is ended; the last one that it was told of stands in a file of the guest's own.
written() { # RESTART or nothing
    yes "insert into t(b) values(randomblob(500)); select writefile('/tmp/acked-'||(last_insert_rowid()%2), last_insert_rowid());" |
        as sqlite3 -bail "$mnt/db" > /tmp/sqlite.log 2>&1 & writer=$!
    sleep 4
    if [ -n "$1" ]; then
        before=$(acked)
        restart_below $writer
        for _ in $(seq 90); do [ "$(acked)" -gt "$((before + 5))" ] && break; sleep 1; done
        [ "$(acked)" -gt "$((before + 5))" ] || refuse "no transaction after the restart: $(cat /tmp/sqlite.log)"
    fi
    kill -0 $writer || refuse "SQLite has ended: $(cat /tmp/sqlite.log)"
    # By NFS 4.0 each owner's requests are numbered, and a kill within one can leave client and server with different
    # numbers for good (docs/operate/nfs.md): there the program ends by itself.
    if [ "$protocol" = nfs4.0 ]; then killall yes; else kill -9 $writer; fi
    wait $writer || true
    told=$(acked)
    looked
    [ "$found" = "ok
1|1" ] || refuse "after its end, $told transactions: $found"
    echo "$told transactions"
}
kept() {
    rm -f /tmp/acked-*
    (as sqlite3 "$mnt/db" 'create table t(a integer primary key, b blob)')
    written
    # By SMB a program that is at work is told of the error (see `cloned`), and ends; so the restart is between two.
    if [ "$protocol" = smb ]; then ask restart smb; written; else written restart; fi
    written
}

# The client takes its locks again from a server that has started anew.
locked() {
    # All may read it, and only that.
    (umask 022; as sh -c ": > $mnt/locked")
    (as flock -x "$mnt/locked" sleep 1000) & holder=$!
    ask locked
    ask restart "$protocol"
    ask locked
    killall sleep
    wait $holder || true
    ask free
}

unmounted() {
    (as rm -rf "$mnt")
    umount /mnt
}

all() {
    step mount mounted
    if [ $code != 0 ]; then return; fi
    step git cloned
    step fsx compared
    step sqlite kept
    # By NFS 3 without rpc.statd and by SMB with nobrl, locks are the client's own.
    case $protocol in nfs4*) step locks locked ;; esac
    step unmount unmounted
}

ip link set lo up
for module in virtio_pci virtio_net nfs nfsv3 nfsv4 cifs; do modprobe $module || say "| no module $module"; done
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
for protocol in $(echo "$PROTOCOLS" | tr ',' ' '); do all; done
say "over"
poweroff -f
