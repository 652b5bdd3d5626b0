#!/bin/bash
# Trains with examples/distributed as two processes of this machine, started in each way that needs no cluster, and
# without each of the two in turn: the other goes on from the checkpoint.
#
#     ./ranks.sh [PROGRAM]
#
# Needs two GPUs, or one with NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1. Cases of mpirun and of torchrun run where
# these are; PYTHON names the Python that has PyTorch, LIMIT the seconds that a case may take.
# Exit code: 0 all cases that ran passed, 1 one failed, 2 none could run.
set -u
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/cases.sh"
find_program "$@"

# This script sets those that a case is about; a launcher that started it must not be taken for one of them.
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT "${!TORCHELASTIC_@}" "${!OMPI_COMM_@}" \
    "${!PMIX_@}" "${!SLURM_@}"
if [ "${NCCL_MULTI_RANK_GPU_ENABLE:-0}" = 0 ] && command -v nvidia-smi >/dev/null; then
    [ "$(count_of_gpus)" -ge 2 ] || missing "two GPUs are needed"
fi
said=$("$program" --steps 200 2>&1)
case $? in
    0) ;;
    2) missing "$said" ;;
    *) echo "FAILED: one rank alone: $said" && exit 1 ;;
esac
# Where ranks meet that have no other place, and where they leave checkpoints.
export TMPDIR=$work program work
cd "$work" || exit 2

both='all 2 ranks have the same weights'
from_40='1 rank, from step 40:'
python=${PYTHON:-python3}

# A port at which no process listens.
free_port() {
    local port
    while port=$((20000 + RANDOM % 20000)) && (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null; do :; done
    echo $port
}

# Waits for processes, and returns the highest exit code of those that no signal ended.
worst() {
    local pid code worst=0
    for pid; do
        wait "$pid"
        code=$?
        [ $code -gt 128 ] || [ $code -le $worst ] || worst=$code
    done
    return $worst
}

# Two ranks with the variables that torchrun sets, and with these arguments.
with_variables() {
    local rank pids=()
    for rank in 0 1; do
        RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            "$program" "$@" &
        pids+=($!)
    done
    worst "${pids[@]}"
}

# Two ranks by hand, of which this process ends one, by SIGKILL, once there is a checkpoint.
killed_from_outside() {
    local lost=$1 job=outside-$1 rank pids=()
    for rank in 0 1; do
        "$program" --rank $rank --local-rank $rank --size 2 --dir "$work" --job "$job" \
            --checkpoint "$work/$job" --steps 20000 --every 200 --limit 3 &
        pids+=($!)
    done
    until [ -e "$work/$job" ]; do
        kill -0 "${pids[@]}" || return 1
        sleep 0.05
    done
    kill -KILL "${pids[lost]}"
    worst "${pids[@]}"
}
export -f worst with_variables killed_from_outside
# Runs one of these functions, where a program is expected.
call=(bash -c '"$@"' call)

for how in '' --compare; do
    requires "spawn${how:+, beside one rank}" "$both" "$program" --spawn 2 $how
done
for lost in 0 1; do
    requires "spawn, rank $lost lost" "$from_40" "$program" --spawn 2 --kill $lost@50 --limit 3
    requires "by hand, rank $lost killed from outside" '1 rank, from step [1-9]' "${call[@]}" killed_from_outside $lost
done

if command -v mpirun >/dev/null; then
    mpirun --version 2>&1 | head -n 1
    # In containers the only user is root, and a core may count as no slot.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    requires "mpirun" "$both" mpirun -n 2 "$program"
    requires "mpirun, beside one rank" "$both" mpirun -n 2 "$program" --compare
    if [ "$(count_of_gpus)" -ge 2 ]; then
        # shellcheck disable=SC2016 # each rank's shell expands them
        requires "mpirun, each rank sees its GPU alone" "$both" \
            mpirun -n 2 sh -c 'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec "$program"'
    else
        leave_out "mpirun, each rank sees its GPU alone" "two GPUs are needed"
    fi
    for lost in 0 1; do
        survives "mpirun, rank $lost lost" "$from_40" \
            mpirun -n 2 --enable-recovery "$program" --kill $lost@50 --limit 3
    done
else
    leave_out "mpirun" "it is not installed"
fi

port=$(free_port)
export port
requires "variables of torchrun" "$both" "${call[@]}" with_variables
requires "variables of torchrun, rank 1 lost" "$from_40" "${call[@]}" with_variables --kill 1@50 --limit 3
requires "variables of torchrun and a directory, rank 0 lost" "$from_40" \
    "${call[@]}" with_variables --dir "$work" --kill 0@50 --limit 3
# At a port of rank 0 the others cannot meet without it, and say so; started again, the job goes on.
survives "variables of torchrun, rank 0 lost" 'start the job again' \
    "${call[@]}" with_variables --checkpoint "$work/again" --kill 0@50 --limit 1
requires "started again from its checkpoint" 'from step 40:' "$program" --spawn 2 --checkpoint "$work/again"

if "$python" -c 'import torch.distributed.run' 2>/dev/null; then
    requires "torchrun" "$both" "$python" -m torch.distributed.run --nnodes 1 --nproc-per-node 2 \
        --master-addr 127.0.0.1 --master-port "$(free_port)" --no-python "$program"
else
    leave_out "torchrun" "$python has no torch.distributed.run"
fi
finish
