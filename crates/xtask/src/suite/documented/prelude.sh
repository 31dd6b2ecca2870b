# Functions for the set-up comments of the pages. Addresses are replaced as on the pages.

# Waits until an address answers with success, or the last background process has ended.
wait_for() {
    until curl -fs -o /dev/null "$1"; do
        kill -0 $! || { echo "it ended before it answered at $1"; cat ./*.log; return 1; }
        sleep 0.05
    done
}

# Starts a gateway on the folder `data`.
start() {
    portunus serve --listen 127.0.0.1:8080 "$@" >>gateway.log 2>&1 &
    GATEWAY=$!
    wait_for http://127.0.0.1:8080/readyz
}

# Stops it as a service manager would.
stop() {
    kill "$GATEWAY" && wait "$GATEWAY"
}

# Makes a key and prints its value.
key() {
    portunus keys create --json "$@" | sed 's/.*"key":"\([^"]*\)".*/\1/'
}

# Makes a call: key, model.
call() {
    curl -fsS -o answer.json http://127.0.0.1:8080/v1/chat/completions -H "Authorization: Bearer $1" \
        -H 'Content-Type: application/json' \
        -d "{\"model\":\"${2:-demo-chat}\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}]}"
}
