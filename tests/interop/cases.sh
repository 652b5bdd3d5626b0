# What ranks.sh and slurm.sh share: cases, of which each runs a command and reads what it prints. To be sourced.
# shellcheck shell=bash disable=SC2034 # what is set here, the scripts use

# Ends the script because something is missing on this machine.
missing() {
    echo "not run: $*" >&2
    exit 2
}

# The example to run: the argument, or that of the bundle which the script is in.
find_program() {
    local found=${1:-$here/examples/distributed}
    if [ $# -gt 1 ] || [ ! -x "$found" ]; then
        usage
        missing "there is no program $found"
    fi
    program=$(realpath "$found")
}

# Prints the comment at the head of the script.
usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; }

count_of_gpus() { nvidia-smi --list-gpus 2>/dev/null | wc -l; }

here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
limit=${LIMIT:-180} # seconds for a case
passed=0 failed=() not_run=()

# Runs a command as the case of that name: it must end with the exit code 0, and print a line that matches
# the pattern.
requires() { run_case 0 "$@"; }

# The same, with any exit code: launchers tell by theirs that a rank was lost.
survives() { run_case any "$@"; }

run_case() {
    local code=$1 name=$2 pattern=$3 output ended why='' began=$SECONDS
    shift 3
    echo "== $name: $*"
    output=$(timeout --kill-after=10 "$limit" "$@" 2>&1 </dev/null)
    ended=$?
    sed 's/^/   | /' <<<"$output"
    if [ $((SECONDS - began)) -ge "$limit" ]; then
        why="no end within $limit s"
    elif [ "$code" != any ] && [ $ended != "$code" ]; then
        why="exit code $ended"
    elif ! grep -Eq "$pattern" <<<"$output"; then
        why="no line matches '$pattern' (exit code $ended)"
    fi
    if [ -z "$why" ]; then
        passed=$((passed + 1))
        echo "passed: $name"
    else
        failed+=("$name: $why")
        echo "FAILED: $name: $why"
    fi
}

# Notes a case that this machine cannot run, and why.
leave_out() {
    not_run+=("$1: $2")
    echo "not run: $1: $2"
}

# Repeats what did not pass, and ends the script.
finish() {
    echo
    [ ${#not_run[@]} = 0 ] || printf 'not run: %s\n' "${not_run[@]}"
    [ ${#failed[@]} = 0 ] || printf 'FAILED: %s\n' "${failed[@]}"
    echo "$passed passed, ${#failed[@]} failed, ${#not_run[@]} not run"
    [ ${#failed[@]} = 0 ] || exit 1
    [ "$passed" != 0 ] || exit 2
    exit 0
}
