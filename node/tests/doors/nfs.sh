# NFS-Ganesha over a mount, in namespaces of its own. Arguments: the binary, a work directory, Ganesha's configuration.
set -eu
sinter=$1 work=$2 config=$3 files=${SINTER_HANDLES:-1000}
. "$(dirname "$0")/ground.sh"
ground /var/lib/nfs

serve() { ganesha_up "$config"; }
unserve() { ganesha_down; }

# What a client is told that has had its files open all along, by handle.
ask() { # COMMAND [WANTED]
    echo "$1" >&"${client[1]}"
    read -r -t 60 -u "${client[0]}" answer || fail "the client says nothing to $1"
    [ -z "${2:-}" ] || [ "$answer" = "$2" ] || fail "line ${BASH_LINENO[0]}: $1: $answer instead of $2"
}
names() { # what new clients see by name, over both protocols
    for version in 3 4; do
        for number in 1 $((files / 2)); do
            told=$(nfs-cat "nfs://127.0.0.1/sinter/dir/file-$number?version=$version") || fail "NFS $version: nfs-cat"
            [ "$told" = "content $number" ] || fail "NFS $version: $told"
        done
    done
}

fill() { # files of the same names and inode numbers, with a content for each brick
    mkdir -m 0777 /srv/sinter/dir
    for number in $(seq "$files"); do echo "$1 $number" > "/srv/sinter/dir/file-$number"; done
}
# A mount gets the lowest device number that is free. So mounts of nothing take what is lower, and ours until the moment before:
# whoever else mounts something would get it.
take() { # NUMBER: all that are free up to this one, and one above it
    taken=0
    until [ "$taken" -gt 0 ] && [ "$(stat -c %d "/run/taken/$taken")" -gt "$1" ]; do
        taken=$((taken + 1))
        mkdir -p "/run/taken/$taken"
        mount -t tmpfs none "/run/taken/$taken"
    done
}
leave() { [ ! -d /run/taken ] || umount /run/taken/* || fail "taken numbers are in use"; rm -rf /run/taken; }
remount() { # NUMBER [BRICK]: under this device number, which Ganesha puts into its handles
    unserve
    down
    for _ in $(seq 20); do
        take "$1"
        for at in $(seq "$taken"); do
            if [ "$(stat -c %d "/run/taken/$at")" = "$1" ]; then umount "/run/taken/$at"; rmdir "/run/taken/$at"; fi
        done
        up "${2:-brick}"
        leave
        if [ "$(stat -c %d /srv/sinter)" = "$1" ]; then serve; return; fi
        down
    done
    again
}
again() { # Somebody was quicker, and keeps it: all of it from the start, under another number.
    [ "${attempt:-1}" -lt 5 ] || fail "device number $device does not come again"
    kill "$client_PID" "$(pidof rpcbind)"
    rm -rf "$work/brick" "$work/other"
    attempt=$((${attempt:-1} + 1)) exec bash "$0" "$sinter" "$work" "$config"
}

# Nobody has state to reclaim: clients of NFS 4 need not wait after each start.
sed -i 's/Grace_Period = 15;/Graceless = true;/' "$config"
rpcbind -w
up other
fill other
down
take "$(($(stat -c %d /run) + 20))"
up
leave
fill content
device=$(stat -c %d /srv/sinter)
serve
for version in 3 4; do
    nfs-cp "$config" "nfs://127.0.0.1/sinter/dir/copied-$version?version=$version" >/dev/null || fail "nfs-cp by NFS $version"
    cmp "$config" /srv/sinter/dir/copied-$version || fail "what NFS $version wrote differs"
done
[ "$(nfs-ls "nfs://127.0.0.1/sinter/dir?version=3" | wc -l)" = $((files + 2)) ] || fail "nfs-ls"
names
coproc client { exec python3 "$(dirname "$0")/client.py" "$files"; }
all="right $files stale 0" none="right 0 stale $files"
ask open "opened $files"
ask read "$all"
forget
ask read "$all"
unserve
forget
serve
ask read "$all"
names
remount "$device"
ask read "$all"
names
remount "$device" other
ask read "$none"
remount "$device"
ask read "$all"
gone=$((files / 2))
for at in $(seq $((gone + 1)) "$files"); do rm "/srv/sinter/dir/file-$at"; done
for at in $(seq "$files"); do echo young > "/srv/sinter/dir/young-$at"; done
# Ganesha keeps files open for a while: until then they are there.
unserve
forget
serve
ask read "right $gone stale $gone"
unserve
down
take "$device"
up
leave
serve
[ "$(stat -c %d /srv/sinter)" != "$device" ] || fail "the same device number"
ask read "$none"
names
unserve
down
