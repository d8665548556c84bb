# NFS-Ganesha over a mount, in namespaces of its own. Arguments: the binary, a work directory, Ganesha's configuration.
set -eu
sinter=$1 work=$2 config=$3
for private in /run /srv /var/lib/nfs; do
    mkdir -p "$private"
    mount -t tmpfs none "$private"
done
mkdir -p /srv/sinter /run/ganesha /var/lib/nfs/ganesha
ip link set lo up

fail() { echo "nfs.sh: $*" >&2; tail -n 20 "$work"/*.log >&2 || true; exit 1; }
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
serve() {
    : > "$work/ganesha.log"
    ganesha.nfsd -F -L "$work/ganesha.log" -f "$config" -p /run/ganesha.pid >/dev/null 2>&1 &
    ganesha=$!
    await grep -q "NFS SERVER INITIALIZED" "$work/ganesha.log"
}
unserve() { kill -TERM "$ganesha"; wait "$ganesha" || true; }
forget() { sync; echo 2 > /proc/sys/vm/drop_caches; }

# What a client is told that has had its files open all along, by handle.
ask() { # COMMAND [WANTED]
    echo "$1" >&"${client[1]}"
    read -r -t 60 -u "${client[0]}" answer || fail "the client says nothing to $1"
    [ -z "${2:-}" ] || [ "$answer" = "$2" ] || fail "$1: $answer instead of $2"
}
names() { # what new clients see by name, over both protocols
    for version in 3 4; do
        for number in 1 20; do
            told=$(nfs-cat "nfs://127.0.0.1/sinter/dir/file-$number?version=$version") || fail "NFS $version: nfs-cat"
            [ "$told" = "content $number" ] || fail "NFS $version: $told"
        done
    done
}

# Nobody has state to reclaim: clients of NFS 4 need not wait after each start.
sed -i 's/Grace_Period = 15;/Graceless = true;/' "$config"
rpcbind -w
up
mkdir -m 0777 /srv/sinter/dir
for number in $(seq 20); do echo "content $number" > "/srv/sinter/dir/file-$number"; done
serve
nfs-cp "$config" "nfs://127.0.0.1/sinter/dir/copied?version=3" >/dev/null || fail "nfs-cp"
cmp "$config" /srv/sinter/dir/copied || fail "what NFS 3 wrote differs"
[ "$(nfs-ls "nfs://127.0.0.1/sinter/dir?version=3" | wc -l)" = 21 ] || fail "nfs-ls"
names
coproc client { exec python3 "$(dirname "$0")/client.py"; }
ask open "opened 20"
ask read "right 20 stale 0"
forget
ask read "right 20 stale 0"
names
unserve
forget
serve
ask read "right 20 stale 0"
names
before=$(stat -c %d /srv/sinter)
unserve
down
up
after=$(stat -c %d /srv/sinter)
serve
if [ "$before" = "$after" ]; then ask read "right 20 stale 0"; else ask read "right 0 stale 20"; fi
names
if [ "$before" = "$after" ]; then
    rm /srv/sinter/dir/file-1[0-9]
    for number in $(seq 100); do echo young > "/srv/sinter/dir/young-$number"; done
    forget
    unserve
    serve
    ask read "right 10 stale 10"
fi
unserve
down
echo "device $before then $after"
