# What the scripts of tools/check-release share; it is run in an empty Debian, before them.
die() { echo "check-release: $1" >&2; [ ! -e /tmp/node.log ] || tail -n 20 /tmp/node.log >&2; exit 1; }

# Every file, but what changes with any installation.
list() {
    find / -xdev \( -path /proc -o -path /tmp -o -path /release -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/log \
        -o -path /etc/passwd- -o -path /etc/shadow- -o -path /etc/group- -o -path /etc/gshadow- -o -path /run -o -path /var/lib/systemd \) -prune -o -print | sort
}

# Nothing is left that was not there before, but the data.
left() {
    list >/tmp/after
    new=$(comm -13 /tmp/before /tmp/after | grep -v '^/var/lib/lighter' || true)
    [ -z "$new" ] || die "these are left: $new"
}

# Waits until the command succeeds, for at most a minute.
wait_for() {
    waited=0
    until sh -c "$2" >/tmp/waited 2>&1; do
        waited=$((waited + 1))
        [ "$waited" -lt 600 ] || die "$1 did not come within a minute: $(cat /tmp/waited)"
        sleep 0.1
    done
}

# Starts a node as this user, and waits until it answers.
start_as() {
    user=$1
    shift
    for word; do data=$word; done
    runuser -u "$user" -- "$@" >>/tmp/node.log 2>&1 &
    wait_for "a node" "runuser -u $user -- lighter ls --data-folder $data"
}

on_node() { runuser -u "$user" -- lighter "$@" --data-folder "$data"; }

stop() {
    runuser -u "$user" -- lighter down --quiet --data-folder "$data"
    wait
}

# A function that counts in the store, and its next answer.
deploy() {
    cat >/tmp/guests/lighter.toml <<'MANIFEST'
[function.counter]
image = "counter.wasm"
grants.stores = ["counters"]
MANIFEST
    chmod -R a+rX /tmp/guests
    runuser -u "$user" -- lighter deploy --quiet --data-folder "$data" /tmp/guests >/dev/null || die "the function is not deployed"
}

count_is() {
    said=$(on_node call counter)
    [ "$said" = "$1" ] || die "the function has counted $said, not $1"
}

