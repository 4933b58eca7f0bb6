package command

const runHelp = `Start COUNT processes of PROGRAM on this host, as ranks of a cluster, and end when
they have ended.

Without --seed and --peers the processes are a cluster of their own, with a seed
inside nexar run that only this host can reach. With --seed or --peers they are
part of a larger cluster.

PROGRAM calls nexar.Join with an empty Config. Its settings are in its
environment:

  NEXAR_SEEDS          address of the seed
  NEXAR_CLUSTER_TOKEN_FILE
                       file with the token of the cluster, which only this user
                       may read: the token of NEXAR_CLUSTER_TOKEN or of this
                       variable, or else a new one
  NEXAR_RANK           rank (with --seed only if --first-rank is given)
  NEXAR_WORLD          number of ranks (with --seed only if --world is given)
  NEXAR_LOCAL_RANK     number among the processes of this host, from 0
  NEXAR_LISTEN         127.0.0.1:0 (unchanged with --seed)
  NEXAR_DUMP_ON_QUIT   1 unless set: on SIGQUIT (Ctrl-\) every rank prints its
                       operations and the ranks they wait for, and ends
  NEXAR_STACKS         1 with --stacks: it prints the stacks of all goroutines
                       first
  NEXAR_LEAVE_ON_SIGTERM
                       1 with --elastic unless set: a process that calls
                       Node.Reconfigure leaves there after SIGTERM

Other NEXAR_* variables are passed on; docs/config.md lists them.

OUTPUT
  Every line begins with the rank, "[2] ". If the seed chooses the ranks (--seed
  or --peers without --first-rank), lines before the process has joined begin
  with host name and pid instead, "[node7:4711] ", the name of the process in the
  output of the seed and of "nexar status". With --elastic the prefix changes with
  the rank. It is colored on a terminal unless NO_COLOR is set. A line is written
  when it is whole. A part that has waited for 0.1 s, such as a prompt or a progress
  bar, is written before. If another process writes then, its output begins on a new
  line, and the rest of the part on another one.
  Standard input goes to the first process.

SIGNALS AND FAILURES
  SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to all processes. The third
  request to end kills them. SIGHUP and SIGINT stay ignored if they were ignored at
  the start, as by nohup or in the background of a script.
  When a process fails, operations of the others return an error that names it. They
  have the grace time (--grace) to end; then they get SIGTERM, and after the grace
  time again SIGKILL. nexar run prints first how the process has ended that the others
  depend on, with its last line of standard error, and in a second line the others.

THE PAGE
  With --http 8080, nexar run shows the cluster at http://127.0.0.1:8080/, as long
  as it runs. The browser asks for a ticket, which nexar run prints on a terminal,
  or else the command for it. See nexar seed --help.

METRICS
  With --metrics 9464, nexar run serves the metrics of all nodes of the cluster for
  Prometheus at http://127.0.0.1:9464/metrics, as long as it runs: calls, bytes and
  times of operations, ranks that are late, links, members. docs/metrics.md lists
  them. Every host that reaches the address can read them. Programs may serve their own
  metrics instead, by package metrics.

SEVERAL SEEDS
  With --peers and --world, nexar run on each of three or five hosts runs a seed
  as well, and fewer than half of these hosts may fail (see nexar seed --help).
  Further hosts use --seed.

ELASTIC WORLDS
  With --elastic the other ranks continue when a process fails after the world
  has formed, and more may join: nexar run prints the command for this. A new
  token is in a file that only this user may read; the command names the file.
  The world has at least --min and at most --max nodes. The program loops over
  Node.Epochs and, to admit nodes, calls Node.Reconfigure, as examples/elastic
  does.

DESCENDANTS
  Processes that ranks start do not outlive nexar run. When a rank has ended,
  its process group gets SIGTERM, and SIGKILL after the grace time. When all
  ranks have ended, so do other descendants, depending on the system:

  Linux    all descendants, daemons in their own sessions included, which
           needs /proc. One in another process group than its rank gets SIGTERM
           when its parent has ended. nexar run is two processes: if one is
           killed, the other ends all ranks and descendants. If both are killed
           at once, ranks end, but descendants in other process groups do not.
  Windows  all descendants, without a grace time, also if nexar run is killed
  others   the process group of each rank; a process that leaves the group is
           not ended. If nexar run is killed, its second process ends the groups.

  Ranks have no controlling terminal, and Ctrl-Z does not stop them. To start a
  process that outlives the run, use a service: systemd-run, at, a container
  runtime. Processes of other users (sudo) cannot be killed; nexar run names
  them.

EXIT STATUS
  0      all processes exited with 0; with --elastic, at least one did
  N      the first process that failed exited with N
  128+N  the first process that failed, or nexar run itself, was killed by
         signal N
  1      a process ended before the world had formed, while others waited
  2      wrong usage
  126    PROGRAM cannot be executed
  127    PROGRAM was not found`

const runExamples = `  Four ranks on this host:
    nexar run -n 4 -- ./train --epochs 10
    nexar run -n 4 -- go run ./examples/allreduce

  Eight ranks, each connected to four others, which relay for it:
    nexar run -n 8 --topology k-regular:4 -- ./train

  Four ranks that nexar status can query:
    export NEXAR_CLUSTER_TOKEN=$(nexar token)
    nexar run -n 4 -- ./train

  Four ranks, shown in a browser at http://127.0.0.1:8080/:
    nexar run -n 4 --http 8080 -- ./train

  Ranks 4 to 7 of a cluster of eight, with its seed on 10.0.0.1:
    export NEXAR_CLUSTER_TOKEN=...
    nexar run -n 4 --seed 10.0.0.1:7946 --world 8 --first-rank 4 -- ./train

  Two ranks on each of three hosts, any of which may fail; on each the same:
    export NEXAR_CLUSTER_TOKEN=...
    nexar run -n 2 --world 6 --elastic --state-dir /var/lib/nexar \
      --peers 10.0.0.1:7946,10.0.0.2:7946,10.0.0.3:7946 -- ./train

  Two more ranks for a running elastic cluster, and a spare:
    nexar run -n 2 --elastic --seed 10.0.0.1:7946 -- ./train
    nexar run --elastic --seed 10.0.0.1:7946 --env NEXAR_SPARE=1 -- ./train`
