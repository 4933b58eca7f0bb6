package command

// simulateLong is the help of nexar simulate.
const simulateLong = `Predict the time of collectives on a machine that is described by a few numbers.

The plans of all ranks, the same that nexar executes over links, are executed in a
discrete-event model. Ranks of a host share its processors. Every message takes
processor time at both ends, and occupies the links of its path, so that contention
shows. Messages longer than --eager wait for a grant of the receiver. One collective is
simulated alone, on --channels channels, and all ranks begin at once. docs/scale.md
compares predictions with measurements and with published figures.

With --ranks-per-host the hierarchical algorithms (hosts-leader, hosts-direct and others)
are simulated as well. nexar chooses these if the ranks of each host share memory; the
flags that begin with --memory describe the messages within a host. Algorithms that
need vectors in shared memory instead of messages are not simulated.

OUTPUT
  time          until the last rank has ended
  messages      of all ranks together
  busiest link  the most bytes over one link between hosts in one direction, and that
                link
  best          the algorithm that takes the least time at this size
  by symmetry   only the first rounds of a ring were simulated; the others are assumed
                to take as long, since every rank sends as many bytes to the same ranks

Algorithms with so many moves that they would take minutes are left out unless
--algorithm names them, and listed with the reason, and so are hierarchical
algorithms of many ranks on many hosts. Other plans of a logarithmic number of rounds
are executed in full for up to a million ranks and more, rings for up to --full-max
ranks.

TOPOLOGIES
  flat           only the links of the hosts are ever busy
  fat-tree:32:4  leaf switches with 32 hosts, and 32/4 links to a spine that is never
                 busy; the destination selects the link
  torus:16x16x8  each host has a link to both neighbors in each dimension; messages go
                 along one dimension after the other, in the shorter direction

A file of --model has a JSON object with the flags from --topology to --eager as names:
  {"topology": "fat-tree:32:4", "ranks-per-host": 8, "latency": "2us", "bandwidth": "25GB"}
Flags on the command line override it.

Ctrl-C keeps the sizes that are complete. Without a terminal, a line on standard error
every 10 s shows the progress and the time left.

JSON is one object per line with the fields op, ranks, bytes, topology, algorithm,
channels, time_us, messages, sent_bytes, busiest_link, busiest_bytes, symmetric, best.

EXIT STATUS
  0    everything was simulated
  1    a result could not be written
  2    wrong usage
  130  ended by Ctrl-C`
