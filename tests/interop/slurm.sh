#!/bin/bash
# Trains with examples/distributed under Slurm, on two nodes that are both this machine.
#
#     ./slurm.sh [PROGRAM]
#
# Each node has one of the machine's GPUs and a host number of its own for NCCL, which therefore connects the ranks
# by sockets, as between machines. LIMIT is the seconds that a case may take.
# Exit code: 0 all cases passed, 1 one failed, 2 something is missing here.
set -u

# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/cases.sh"
find_program "$@"
for tool in munged slurmctld slurmd srun sbatch scontrol; do
    PATH=$PATH:/usr/sbin command -v $tool >/dev/null || missing "no $tool (Debian: slurmctld slurmd slurm-client munge)"
done
export PATH=$PATH:/usr/sbin
[ "$(count_of_gpus)" -ge 2 ] || missing "two GPUs are needed"

export SLURM_CONF=$work/slurm.conf
end() {
    local daemon pid
    for daemon in n0 n1 ctld munge; do
        pid=$(cat $work/$daemon.pid 2>/dev/null) && kill $pid && tail --pid=$pid -f /dev/null
    done
    rm -rf $work
}
trap end EXIT

head -c 1024 /dev/urandom >$work/key && chmod 400 $work/key
munged --force --key-file=$work/key --socket=$work/socket --pid-file=$work/munge.pid \
    --log-file=$work/munge.log --seed-file=$work/seed || missing "munged did not start"
cat >$work/cgroup.conf <<<CgroupPlugin=cgroup/v1 # which needs no controller for what is used here
cat >$work/slurm.conf <<END
ClusterName=one
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthInfo=socket=$work/socket
SlurmctldPort=16817
StateSaveLocation=$work
SlurmdSpoolDir=$work/%n.spool
SlurmctldLogFile=$work/ctld.log
SlurmdLogFile=$work/%n.log
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
NodeName=n0 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=16820 CPUs=2
NodeName=n1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=16821 CPUs=2
PartitionName=all Nodes=n0,n1 Default=YES OverSubscribe=FORCE
END
slurmctld -f $SLURM_CONF && slurmd -N n0 -f $SLURM_CONF && slurmd -N n1 -f $SLURM_CONF ||
    { tail -n 5 $work/*.log >&2; missing "Slurm did not start"; }
until [ "$(sinfo --noheader --format %t)" = idle ]; do
    kill -0 "$(cat $work/ctld.pid)" || missing "slurmctld ended"
    sleep 0.1
done

cat >$work/on_node <<'END'
#!/bin/bash
export CUDA_VISIBLE_DEVICES=$SLURM_NODEID NCCL_HOSTID=$SLURMD_NODENAME NCCL_SOCKET_IFNAME=lo
exec "$@"
END
chmod +x $work/on_node
both='all 2 ranks have the same weights'
requires "one node" "$both" srun -N1 -n2 "$program" --dir $work --compare
requires "two nodes" "$both" srun -N2 -n2 $work/on_node "$program" --dir $work --compare
for lost in 0 1; do
    survives "two nodes, rank $lost lost" '1 rank, from step 40:' srun -N2 -n2 --kill-on-bad-exit=0 \
        $work/on_node "$program" --dir $work --kill $lost@50 --limit 3
done

cat >$work/job <<END
#!/bin/bash
export MASTER_ADDR=127.0.0.1 MASTER_PORT=16830
srun $work/on_node "$program"
END
requires "a batch job" 'Submitted' sbatch --wait -N2 -n2 --output $work/job.out $work/job
requires "what the batch job printed" "$both" cat $work/job.out
finish
