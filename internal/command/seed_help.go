package command

const seedHelp = `Admit COUNT nodes to a cluster, give them ranks, and distribute their addresses. No
data goes through the seed. It prints the variables to set on the other hosts,
then a line for each node that joins or leaves, and ends when all nodes have gone.
While nodes wait for others, it says who is missing after 3 s and at growing intervals.

The token is in NEXAR_CLUSTER_TOKEN, or in the file of mode 0600 that
NEXAR_CLUSTER_TOKEN_FILE names. If neither is set, nexar seed makes a token and
prints it; with --state-dir, only at the first start. A token that "nexar token"
did not make is refused without NEXAR_ALLOW_WEAK_TOKEN=1.

Nodes use the UDP and the TCP port of --listen: open both in your firewall.

ELASTIC WORLDS
  With --elastic, nodes may join after the world has formed, up to --max nodes.
  They become members at the next Node.Reconfigure of the others. If nodes fail
  and fewer than --min remain, the remaining nodes wait for new ones. Spares
  (NEXAR_SPARE=1) may join any world, and replace nodes that have gone.

STATE
  With --state-dir the seed keeps the members and the certificate authority on
  disk, and the token if it made one. Started again with the same directory and
  flags, it continues; nodes try to reach it meanwhile. A damaged state is an
  error. Do not restore an older copy of the directory: only the other seeds, if
  there are any, can notice it.

SEVERAL SEEDS
  With --peers there are three or five seeds, each started with the same list
  and flags and its own --state-dir. They replicate their decisions (Raft), and
  fewer than half of them may fail: one of three, two of five. Nodes may contact
  any seed and find the leader. Any process with the cluster token, such as a
  node, could pose as a seed, unless the seeds have a token of their own
  (--peer-token-file).

  A seed whose directory was lost or damaged must not vote with an empty log:
  start it with --forget-state. While a majority of the seeds runs, it learns the
  state from them, and votes when it has caught up. Replaced files get the suffix
  .forgotten; an undamaged state is kept. Do not use --forget-state when a
  cluster is started for the first time.

  If all seeds are gone, the world works until a node fails. The world ends 30 s
  after its last node has failed, or as soon as its last node has left; seeds
  that are started again after that begin a new world.

A CA OF YOUR OWN
  The seed makes a CA for each cluster, which signs the certificates of its nodes.
  With --ca-cert and --ca-key, a CA of your own signs the certificate of that CA.
  Nodes with --ca-cert in NEXAR_CA_FILE then refuse seeds of other CAs, even those
  with the token. Give the same CA to all seeds, and after a restart. It needs the
  basic constraint CA:TRUE and a path length of at least 1, or none; its key is
  read only at the start.

THE PAGE
  With --http the seed shows the cluster in a browser: calls and states of all ranks,
  their waits for others, links, throughput, and the history of the world.
  "--http 8080" listens at 127.0.0.1; from another computer, use
  "ssh -L 8080:127.0.0.1:8080 HOST". The browser asks for a ticket, which "nexar
  ticket" prints; on a terminal the seed prints one, too. The page changes nothing,
  and the nodes are only asked while a browser shows it.

METRICS
  With --metrics the seed serves the metrics of all nodes for Prometheus, at
  /metrics: calls, bytes and times of operations, ranks that are late, links,
  members. docs/metrics.md lists them. "--metrics 9464" listens at 127.0.0.1, and
  "--metrics :9464" would be the same; Prometheus on another host needs
  "--metrics 10.0.0.1:9464". Every host that reaches the address can read them. A
  scrape makes the seed ask all nodes once, for all scrapes at the time.

EXIT STATUS
  0      the world formed and all nodes have gone
  1      the world did not form, or the seed could not start
  2      wrong usage
  128+N  signal N ended the seed (Ctrl-C: 130); a world that has formed continues`

const seedExample = `  Four nodes, two on each of two hosts. On 10.0.0.1:
    export NEXAR_CLUSTER_TOKEN=$(nexar token)
    nexar seed --listen :7946 --world 4 &
    nexar run -n 2 --seed 10.0.0.1:7946 -- ./train

  and on 10.0.0.2, with the same token:
    nexar run -n 2 --seed 10.0.0.1:7946 -- ./train

  Three seeds, of which one may fail; on each of their hosts:
    nexar seed --peers 10.0.0.1:7946,10.0.0.2:7946,10.0.0.3:7946 \
      --state-dir /var/lib/nexar --world 4

  and for the nodes:
    export NEXAR_SEEDS=10.0.0.1:7946,10.0.0.2:7946,10.0.0.3:7946`
