# shellcheck shell=bash
# Steps with a name and a time, one after the other or beside each other; part of lib.sh, tested by scripts/steps-test.
#
#   step NAME COMMAND…         runs it here and now, output and all. Fails when it fails, or as soon as one beside it does
#   beside LANE NAME PROGRAM…  runs it while others go on. In one lane it is one after the other. What it says goes to a
#                              file, which is shown whole if it fails; if it passes, its last words are
#   join [LANE…]               waits until everything in these lanes, or in all, has passed
#   conclude CODE SENTENCE     for `trap … EXIT`: ends what still runs, calls clear_away, tells what took how long, and the
#                              sentence if `passed=yes` was reached
#   stop_steps                 ends everything that runs; any other trap for EXIT has to call it
#
# Every step is a process group of its own, known by the id of its first process, and that is how it is ended. Commands
# must not change variables: they run in processes of their own, so that a signal is heard at once and not at their end.

STEPS=()      # what has passed, with its time, for the summary
QUEUED=()     # positions in the lists below of those that wait for their lane, in order
declare -A RUNNING=() # process → position
LANE=() NAME=() PROGRAM=() BEGAN=() # by position; a PROGRAM is quoted words

LOGS=$TARGET/logs

trap 'exit 130' INT
trap 'exit 143' TERM HUP
trap stop_steps EXIT

log_of() { printf '%s/%s.log' "$LOGS" "$(printf '%s' "$1" | tr -cs '[:alnum:]' '-')"; }

# What is left to say of a step that has passed: cargo's own line about each suite that has tests, or else the last line.
last_words() {
    local results
    if results=$(grep -E '^test result: ' "$1" | grep -v ' 0 passed; 0 failed'); then
        printf '\n%s\n' "$results"
    else
        printf ' %s\n' "$(tail -n 1 "$1")"
    fi
}

step() {
    local name=$1 began pid code=0; shift
    say "── $name"
    began=$(now)
    # With job control a process group is made for it.
    set -m
    ( set -e; "$@" ) &
    pid=$!
    set +m
    RUNNING[$pid]=here
    until_ended "$pid" || code=$?
    if [ "$code" != 0 ]; then
        [ -n "${RUNNING[$pid]:-}" ] || printf 'error: %s failed after %s s\n' "$name" "$(since "$began")" >&2
        return 1
    fi
    STEPS+=("$(printf '%8s s  %s' "$(since "$began")" "$name")")
    show_beside
}

beside() {
    LANE+=("$1") NAME+=("$2") BEGAN+=(0); shift 2
    PROGRAM+=("$(printf '%q ' "$@")")
    QUEUED+=($((${#NAME[@]} - 1)))
    start_queued
}

join() {
    local lane=" $* " position left
    while :; do
        left=no
        for position in "${QUEUED[@]}" "${RUNNING[@]}"; do
            if [ "$lane" = "  " ] || [[ $lane == *" ${LANE[$position]} "* ]]; then left=yes; fi
        done
        [ "$left" = yes ] || return 0
        show_beside
        next_ended 30 || return 1
    done
}

# Waits for that process and takes note of others that end meanwhile. Its exit code, or 1 when another failed.
until_ended() {
    while [ -n "${RUNNING[$1]:-}" ]; do next_ended || return 1; done
    return "$ENDED"
}

# Waits until one step has ended, for $1 seconds at most if given. Fails if it was one beside the others, and failed.
next_ended() {
    local pid='' code=0 position clock=''
    if [ -n "${1:-}" ]; then sleep "$1" & clock=$!; fi
    wait -n -p pid "${!RUNNING[@]}" ${clock:+"$clock"} || code=$?
    if [ -n "$clock" ] && [ "$pid" != "$clock" ]; then kill "$clock" 2>/dev/null; wait "$clock" 2>/dev/null || true; fi
    if [ -z "$pid" ] || [ "$pid" = "$clock" ]; then return 0; fi
    position=${RUNNING[$pid]}
    unset "RUNNING[$pid]"
    ENDED=$code
    [ "$position" != here ] || return 0
    passed_or_failed "$position" "$code" || return 1
    start_queued
}

passed_or_failed() {
    local name=${NAME[$1]} took log
    took=$(since "${BEGAN[$1]}") log=$(log_of "$name")
    if [ "$2" = 0 ]; then
        printf '   ✓ %s, %s s beside:%s\n' "$name" "$took" "$(last_words "$log")"
        STEPS+=("$(printf '%8s s  %s (beside)' "$took" "$name")")
        return 0
    fi
    { say "── $name: all it said"; cat "$log"; printf 'error: %s failed after %s s\n' "$name" "$took"; } >&2
    return 1
}

# Starts what waits for a lane that is free.
start_queued() {
    local position busy=' ' waiting=()
    for position in "${RUNNING[@]}"; do [ "$position" = here ] || busy+="${LANE[$position]} "; done
    for position in "${QUEUED[@]}"; do
        if [[ $busy == *" ${LANE[$position]} "* ]]; then
            waiting+=("$position")
        else
            start_beside "$position"
        fi
        busy+="${LANE[$position]} "
    done
    QUEUED=("${waiting[@]}")
}

start_beside() {
    local log pid
    log=$(log_of "${NAME[$1]}")
    mkdir -p "$LOGS"
    BEGAN[$1]=$(now)
    # A session of its own, and so a process group: Linux shares processors out by sessions first (autogroup), and only
    # within one does `nice` count. This subshell leads no group, so setsid replaces it, and its id is the group's.
    eval "( exec setsid ${PROGRAM[$1]} ) </dev/null >'$log' 2>&1 &"
    pid=$!
    RUNNING[$pid]=$1
    printf '   … %s, beside what follows (%s)\n' "${NAME[$1]}" "$log"
}

# What runs beside, for how long, and how far it is.
show_beside() {
    local position log
    for position in "${RUNNING[@]}"; do
        [ "$position" != here ] || continue
        log=$(log_of "${NAME[$position]}")
        printf '   … %s, %s s: %s\n' "${NAME[$position]}" "$(since "${BEGAN[$position]}")" "$(tail -n 1 "$log" | cut -c 1-120)"
    done
}

# A prefix for a program that only computes: it gets what those that are waited for leave over.
# shellcheck disable=SC2034,SC2016 # used by the scripts that read this file; expanded by the inner shell
IDLE=(sh -c 'echo 19 2>/dev/null >/proc/self/autogroup; if command -v ionice >/dev/null; then set -- ionice -c 3 "$@"; fi; exec nice -n 19 "$@"' idle)

stop_steps() {
    local pid patience=50
    for pid in "${!RUNNING[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
    for pid in "${!RUNNING[@]}"; do
        while kill -0 -- "-$pid" 2>/dev/null && [ $((patience--)) -gt 0 ]; do sleep 0.2; done
        kill -KILL -- "-$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    RUNNING=() QUEUED=()
}

show_times() {
    say "How long it took"
    [ "${#STEPS[@]}" = 0 ] || printf '%s\n' "${STEPS[@]}"
}

STARTED=$(now) passed=no
clear_away() { :; }
conclude() {
    # Told again to stop, it still clears away to the end.
    trap '' INT TERM HUP
    stop_steps
    clear_away || true
    echo
    show_times
    printf '%8s s  in all\n' "$(since "$STARTED")"
    # Not by the exit code alone: a script that is told to stop may end with 0 here.
    if [ "$passed" = yes ]; then say "$2"; exit 0; fi
    say "FAILED"
    exit $(($1 > 0 ? $1 : 1))
}
