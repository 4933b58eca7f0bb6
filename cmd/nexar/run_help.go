package main

const runHelp = `Run starts COUNT processes of PROGRAM on this host and ends when they have
ended. By themselves they are a cluster, with a seed inside of nexar run that
nobody outside of this host can reach, and the token in NEXAR_CLUSTER_TOKEN, or
a new one. With --seed or --peers they are a part of a larger cluster.

PROGRAM calls nexar.Join with an empty Config; everything that it needs is in
its environment:

  NEXAR_SEEDS          the address of the seed
  NEXAR_CLUSTER_TOKEN  the secret that admits it
  NEXAR_RANK           the rank (with --seed only if --first-rank is given)
  NEXAR_WORLD          the number of ranks (with --seed only if --world is)
  NEXAR_LOCAL_RANK     the number among the processes of this host, from 0
  NEXAR_LISTEN         127.0.0.1:0 (with --seed it is left alone)
  NEXAR_DUMP_ON_QUIT   1, unless it is set: before a SIGQUIT ends a process, it
                       shows what it was in and whom it waited for
  NEXAR_LEAVE_ON_SIGTERM
                       1 with --elastic, unless it is set: a process that calls
                       Node.Reconfigure leaves there after a SIGTERM

With --peers and --world, each nexar run is one of the seeds of a cluster of
several hosts, three or five, so that none has to be started and fewer than half
of these hosts may fail: see nexar seed --help. Hosts beyond that use --seed.

Other variables NEXAR_* are passed on as they are; docs/config.md lists them.

If NEXAR_CLUSTER_TOKEN is set, run prints how to ask where its ranks are: with
"nexar status", by whoever has that token.

Every line of output begins with the rank, "[2] ", in a colour of its own on a
terminal unless NO_COLOR is set. Lines stay whole. Standard input goes to the
first process.

SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to all processes; the third
one that asks them to end kills them. When a process fails, the others, whom
nexar tells of it, have the grace time to end by themselves, then again as
long after a SIGTERM; then they are killed.

With --elastic the others go on when a process fails after the world has
formed, and more may join: run prints the command for that. Such a world has
--min nodes at least, without which it waits, and --max at most; in a larger
cluster the seed is told so, with flags of the same names. This is for programs
that follow Node.Epochs, and for joining also call Node.Reconfigure, as
examples/elastic does.

PROCESSES THAT THE PROGRAM STARTS
  They do not outlive nexar run. When a rank has ended, the rest of its process
  group gets a SIGTERM, and after the grace time a SIGKILL; when all ranks have
  ended, so does every other process that they have left. How far this reaches
  depends on the system:

  Linux    all descendants, daemons in sessions of their own included. nexar run
           is two processes: if either is killed, the other one ends all ranks
           and descendants. If both are killed at the same instant, ranks end,
           and descendants in other process groups go on.
  Windows  all descendants, also if nexar run is killed; without a grace time
  others   the process group of each rank; a process that leaves it goes on. If
           nexar run is killed, FreeBSD ends the ranks, and on all of them the
           second process of nexar run ends their groups.

  Ranks have no controlling terminal, and Ctrl-Z does not stop them.

  A process that is to outlive the run has to be started by a service, whose
  processes are not descendants: systemd-run, at, a container runtime. Processes
  of another user (sudo) cannot be killed; run names them and ends.

EXIT STATUS
  0      all processes exited with status 0; with --elastic, at least one did
  N      the process that failed first exited with status N
  128+N  the process that failed first was killed by signal N, or one of the two
         processes of nexar run was
  1      a process ended before the world had formed, while others waited
  2      nexar run was called wrongly
  126    PROGRAM cannot be executed
  127    PROGRAM was not found`

const runExamples = `  Four ranks on this host:
    nexar run -n 4 -- ./train --epochs 10
    nexar run -n 4 -- go run ./examples/allreduce

  Four ranks, of which others on this host can see where they are:
    export NEXAR_CLUSTER_TOKEN=$(nexar token)
    nexar run -n 4 -- ./train

  Ranks 4 to 7 of a cluster of eight, whose seed runs on 10.0.0.1:
    export NEXAR_CLUSTER_TOKEN=...
    nexar run -n 4 --seed 10.0.0.1:7000 --world 8 --first-rank 4 -- ./train

  Two ranks on each of three hosts, any of which may fail; on each the same:
    export NEXAR_CLUSTER_TOKEN=...
    nexar run -n 2 --world 6 --elastic --state-dir /var/lib/nexar \
      --peers 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000 -- ./train

  Two more ranks for an elastic cluster that works, and a spare for it:
    nexar run -n 2 --elastic --seed 10.0.0.1:7000 -- ./train
    nexar run --elastic --seed 10.0.0.1:7000 --env NEXAR_SPARE=1 -- ./train`
