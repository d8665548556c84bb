# Samba over a mount, in namespaces of its own. Arguments: the binary, a work directory, Samba's configuration.
set -eu
sinter=$1 work=$2 config=$3
for private in /run /srv /var/lib/samba /var/cache/samba /var/log/samba; do
    mkdir -p "$private"
    mount -t tmpfs none "$private"
done
mkdir -p /srv/sinter /run/samba /var/lib/samba/private
ip link set lo up

fail() { echo "smb.sh: $*" >&2; tail -n 20 "$work"/*.log "$work"/log.smbd >&2 || true; exit 1; }
await() { # COMMAND...: until it succeeds, for a minute
    for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
    fail "in vain: $*"
}
up() {
    : > "$work/up.log"
    "$sinter" up "$work/brick" /srv/sinter --size 4G >> "$work/up.log" 2>&1 &
    daemon=$!
    await grep -q ^ready "$work/up.log"
}
down() { kill -TERM "$daemon"; wait "$daemon" || fail "the daemon did not end well"; }
ask() { smbclient -s "$config" //127.0.0.1/sinter -U root%secret -m SMB3 -c "$1"; }
serve() {
    # It ends its whole process group with it: one of its own.
    setsid smbd -s "$config" -F --no-process-group -l "$work" </dev/null >/dev/null 2>&1 &
    samba=$!
    await ask ls
}
unserve() { kill -TERM "$samba"; wait "$samba" || true; }
look() {
    rm -f /run/got /run/stream
    ask "get dir\\config /run/got; get dir\\config:note /run/stream" >"$work/get.log" 2>&1 || fail "smbclient: get"
    cmp "$config" /run/got || fail "another content"
    [ "$(cat /run/stream)" = "a stream" ] || fail "another stream"
    smbcacls -s "$config" //127.0.0.1/sinter dir/config -U root%secret | grep -q "Everyone:ALLOWED/0x0/FULL" ||
        fail "another list of who may"
}

up
printf 'secret\nsecret\n' | smbpasswd -c "$config" -a -s root >/dev/null
serve
printf 'a stream' > /run/note
ask "mkdir dir; put $config dir\\config; put /run/note dir\\config:note" >/dev/null 2>&1 || fail "smbclient: put"
smbcacls -s "$config" //127.0.0.1/sinter dir/config -U root%secret -a ACL:Everyone:ALLOWED/0x0/FULL >/dev/null || fail "smbcacls"
cmp "$config" /srv/sinter/dir/config || fail "what SMB wrote differs"
look
echo 2 > /proc/sys/vm/drop_caches
look
unserve
serve
look
unserve
down
up
serve
look
ask "rename dir\\config dir\\other; del dir\\other; ls dir\\*" >/dev/null 2>&1 || fail "smbclient: del"
[ ! -e /srv/sinter/dir/other ] || fail "it is still there"
unserve
down
