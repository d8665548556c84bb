# What the scripts beside it stand on, in namespaces of their own: a mount at /srv/sinter, and the servers that export it.
# Whoever reads it in has set `sinter` (the binary) and `work` (a directory of their own).

# The host's files in these directories are hidden, not changed.
ground() { # DIRECTORY...
    for private in /run /srv "$@"; do
        mkdir -p "$private"
        mount -t tmpfs none "$private"
    done
    mkdir -p /srv/sinter /run/ganesha /run/samba
    ip link set lo up
}
fail() { echo "${0##*/}: $*" >&2; tail -n 20 "$work"/*.log "$work"/log.* >&2 || true; exit 1; }
await() { # COMMAND...: until it succeeds, for a minute
    for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
    fail "in vain: $*"
}
up() { # [BRICK]
    : > "$work/up.log"
    "$sinter" up "$work/${1:-brick}" /srv/sinter --size 4G >> "$work/up.log" 2>&1 &
    daemon=$!
    await grep -q ^ready "$work/up.log"
}
down() { kill -TERM "$daemon"; wait "$daemon" || fail "the daemon did not end well"; }
forget() { sync; echo 2 > /proc/sys/vm/drop_caches; }

ganesha_up() { # CONFIGURATION
    mkdir -p /var/lib/nfs/ganesha
    : > "$work/ganesha.log"
    ganesha.nfsd -F -L "$work/ganesha.log" -f "$1" -p /run/ganesha.pid >/dev/null 2>&1 &
    ganesha=$!
    await grep -q "NFS SERVER INITIALIZED" "$work/ganesha.log"
}
ganesha_down() { kill "-${1:-TERM}" "$ganesha"; wait "$ganesha" 2>/dev/null || true; }

samba_up() { # CONFIGURATION
    # It ends its whole process group with it: one of its own.
    setsid smbd -s "$1" -F --no-process-group -l "$work" </dev/null >/dev/null 2>&1 &
    samba=$!
    await smbclient -s "$1" //127.0.0.1/sinter -U root%secret -m SMB3 -c ls
}
samba_down() { kill "-${1:-TERM}" -- "-$samba"; wait "$samba" 2>/dev/null || true; }
