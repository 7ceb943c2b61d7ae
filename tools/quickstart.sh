#!/bin/bash
# The README's tour of the product, on a sample checkpoint or one of the caller's: everything happens in a directory of
# its own, with a manager of its own, and is gone afterwards.
#
#     quickstart.sh BUILD-DIRECTORY [CHECKPOINT]
set -euo pipefail
build=$(readlink -f "$1")
model=${2:-}
tools=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

scratch=$(mktemp -d "${TMPDIR:-/tmp}/iloader-quickstart.XXXXXX")
export ILOADER_BASE_DIR=$scratch/base
unset ILOADER_SOCKET
PATH=$build:$PATH
leave() {
        iloader stop --all --force >/dev/null 2>&1 || :
        rm -rf "$scratch"
}
trap leave EXIT

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
# An argument as a person would type it: in single quotes where the shell would read it otherwise.
quoted() {
        local bare='^[A-Za-z0-9_@%+=:,./-]+$' quote="'\\''"
        if [[ $1 =~ $bare ]]; then
                printf '%s' "$1"
        else
                printf "'%s'" "${1//\'/$quote}"
        fi
}
show() {
        local argument
        printf '$'
        for argument; do
                printf ' %s' "$(quoted "$argument")"
        done
        printf '\n'
        "$@"
}
[ -t 1 ] || say() { printf '\n# %s\n' "$*"; }

if [ -z "$model" ]; then
        model=$scratch/sample-model
        say "a sample checkpoint (MODEL=DIR takes one of yours)"
        show python3 "$tools/make-sample-checkpoint.py" "$model"
fi

say "what would be loaded, and would it fit"
show iloader inspect "$model"

say "load it into memory; this starts a manager of your own"
show iloader start "$model" --name quickstart

say "run a program on it: {model} is the published directory, leased while the program runs"
show iloader run quickstart -- ls -l '{model}'
show iloader run quickstart -- sh -c 'cat "$ILOADER_MODEL_PATH"/* | wc -c'

say "what is resident"
show iloader status quickstart

say "give the memory back"
show iloader stop quickstart --remove-view
show iloader list
say "done: see the README's tours, and iloader --help"
