package main

const seedHelp = `Seed admits COUNT nodes to a cluster, gives them their ranks, and makes them
known to each other. No data goes through it. It prints what to set on the
other hosts, then a line for each node that joins or goes; it ends when all of
them have gone.

The token comes from NEXAR_CLUSTER_TOKEN. Without one, seed makes one and
prints it. A token of your own needs 128 bits at least, unless the seed
listens at a loopback address; "nexar token" makes one.

Nodes reach the seed by UDP, and a TCP connection to the same port lets them
notice its end: let both through your firewall.

With --elastic, nodes may join the world after it has formed: they are in it
after the next checkpoint of the others (Node.Reconfigure), as long as there are
no more than --max. If nodes fail and fewer than --min are left, these wait for
others. Spares (NEXAR_SPARE=1) may join any world, and replace nodes that have
gone.

With --state-dir the seed keeps on disk who is in the world, and the certificate
authority of the cluster, and the token if it has made one. When it is started
again with the same directory and flags, the world goes on: its nodes have
looked for the seed meanwhile. A directory with a damaged state, or one that is
older than the last change that the seed has acknowledged, is an error.

With --peers there are several seeds, three or five, each started with the same
list and flags and with a --state-dir of its own. They agree on all that matters
(Raft), so that fewer than half of them may fail at any time: one of three, two
of five. One of them leads; nodes may turn to any, are sent on to that one, and
find the next by themselves. Whoever holds the token of the cluster, as all
nodes do, could pass for a seed, unless they have a token of their own that no
node has (--peer-token-file).

A seed with a lost or damaged directory must not vote as if it had an empty log:
start it with --forget-state. While most of the seeds run, it then learns the
state from them, and votes again when it has caught up. Files that it replaces
get the suffix .forgotten; a state that is not damaged is kept. Leave
--forget-state out when a cluster is started for the first time.

If all seeds are gone, the world works on until a node fails. If all nodes are
gone, the world is over after 30 s, or at once if they have left in good order;
seeds that are started again then begin another one.

EXIT STATUS
  0      the world formed and all nodes have gone
  1      the world did not form, or the seed could not be started
  2      nexar seed was called wrongly
  128+N  signal N ended the seed (Ctrl-C: 130). A world that has formed goes
         on without it`

const seedExample = `  A cluster of four nodes, two on each of two hosts. On 10.0.0.1:
    export NEXAR_CLUSTER_TOKEN=$(nexar token)
    nexar seed --listen :7000 --world 4 &
    nexar run -n 2 --seed 10.0.0.1:7000 -- ./train

  and on 10.0.0.2, with the same token:
    nexar run -n 2 --seed 10.0.0.1:7000 -- ./train

  Three seeds, so that one may fail; on each of their hosts the same:
    nexar seed --peers 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000 \
      --state-dir /var/lib/nexar --world 4

  and for the nodes:
    export NEXAR_SEEDS=10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000`
