# Samba over a mount, in namespaces of its own. Arguments: the binary, a work directory, Samba's configuration.
set -eu
sinter=$1 work=$2 config=$3
. "$(dirname "$0")/ground.sh"
ground /var/lib/samba /var/cache/samba /var/log/samba
mkdir -p /var/lib/samba/private

ask() { smbclient -s "$config" //127.0.0.1/sinter -U root%secret -m SMB3 -c "$1"; }
serve() { samba_up "$config"; }
unserve() { samba_down; }
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
forget
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
