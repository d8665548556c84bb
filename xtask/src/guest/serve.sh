# The host's side of the guest, in namespaces of its own: a mount, NFS-Ganesha and Samba over it, and QEMU, whose guest asks
# for their restarts. Arguments: the binary, a work directory with the guest's kernel and initramfs, the directory of
# `ground.sh`, the protocols, the number of fsx's operations.
set -eu
sinter=$1 work=$2 protocols=$4 operations=$5 scripts=$(dirname "$0")
. "$3/ground.sh"
ground /var/lib/nfs /var/lib/samba /var/cache/samba /var/log/samba
mkdir -p /var/lib/samba/private

# Who may use SMB is a user of the system: this system's users, and one more.
sed '$a guest:x:1000:1000::/:/bin/false' /etc/passwd > "$work/passwd"
mount --bind "$work/passwd" /etc/passwd
for user in root guest; do printf 'secret\nsecret\n' | smbpasswd -c "$work/samba" -a -s $user >/dev/null; done

lock_is() { [ "$(timeout 10 python3 "$scripts/locks.py" | tee "$work/locks.log")" = "$1" ]; }
answer() { # REQUEST...
    case "$*" in
        "content "*) grep -qx "$2" /srv/sinter/dir/written || fail "written: $(cat /srv/sinter/dir/written)" ;;
        "restart smb") samba_down KILL; sleep 2; samba_up "$work/samba" ;;
        "restart nfs"*) ganesha_down KILL; sleep 2; ganesha_up "$work/ganesha" ;;
        locked | free) await lock_is "$1" ;;
        *) fail "the guest asks for $*" ;;
    esac
}

up
chmod 0777 /srv/sinter
rpcbind -w
ganesha_up "$work/ganesha"
samba_up "$work/samba"
coproc guest { exec qemu-system-x86_64 -accel tcg,thread=multi -smp 2 -m 1024 -nodefaults -display none -no-reboot \
    -kernel "$work/kernel" -initrd "$work/initramfs" \
    -append "console=ttyS0 quiet panic=-1 PROTOCOLS=$protocols OPERATIONS=$operations" \
    -netdev user,id=net -device virtio-net-pci,netdev=net,romfile= \
    -serial "file:$work/console.log" -serial stdio 2>"$work/qemu.log"; }
over=
while [ -z "$over" ] && read -r -t 900 -u "${guest[0]}" line; do
    line=${line%$'\r'}
    echo "$line"
    case "$line" in
        "ask "*) answer ${line#ask }; echo done >&"${guest[1]}" ;;
        over) over=1 ;;
    esac
done
[ -n "$over" ] || fail "the guest says nothing more"
samba_down
ganesha_down
down
"$sinter" check "$work/brick"
