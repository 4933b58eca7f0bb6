package metrics

import "github.com/prometheus/client_golang/prometheus"

// A row describes a metric.
type row struct {
	name, help string
	kind       prometheus.ValueType // Untyped: a histogram
	labels     string               // separated by spaces
	ofCluster  bool                 // only ClusterHandler has it
}

// The labels of a metric of a node, and of its operations and links.
const (
	node      = "rank node"
	operation = node + " op comm_size"
	link      = node + " transport class"
)

const (
	gauge     = prometheus.GaugeValue
	counter   = prometheus.CounterValue
	histogram = prometheus.UntypedValue
)

// table has all metrics, in the order of docs/metrics.md.
var table = [...]row{
	{"nexar_cluster_up", "Whether a seed has answered: 1, or 0. Without an answer there are no other metrics.", gauge, "", true},
	{"nexar_cluster_formed", "Whether the world has formed: 1, or 0.", gauge, "", true},
	{"nexar_cluster_epoch", "The epoch of the view of the seed; 0 while nodes are missing.", gauge, "", true},
	{"nexar_cluster_wanted_nodes", "Nodes with which the world forms.", gauge, "", true},
	{"nexar_cluster_joined_nodes", "Nodes that have a rank, or will get one.", gauge, "", true},
	{"nexar_cluster_waiting_nodes", "Nodes that wait to join the world that has formed.", gauge, "", true},
	{"nexar_rank_up", "Whether the node has answered the seed: 1, or 0 if its process is stopped or gone, or its host is down.", gauge, node, true},
	{"nexar_rank_awaited_seconds_total", "Waiting time of the calls of all other ranks for data of this rank, while they waited for at most 8 ranks. In a ring a rank waits for the one before it, which may wait itself.", counter, node, true},

	{"nexar_rank_info", "1, with the name of the process, HOST:PID.", gauge, node + " name", false},
	{"nexar_epoch", "The epoch of the view of the node.", gauge, node, false},
	{"nexar_world_size", "Nodes of the world in that view.", gauge, node, false},
	{"nexar_node_failures_total", "Failures of other nodes that the node knows of.", counter, node, false},
	{"nexar_recoveries_total", "Communicators of the world that have replaced one after a failure.", counter, node, false},
	{"nexar_recovery_seconds_total", "Time from failures to the communicators that have replaced the ones that failed.", counter, node, false},
	{"nexar_certificate_expiry_timestamp_seconds", "Time at which the certificate of the node expires, since 1970. The seed renews it before.", gauge, node, false},

	{"nexar_operations_total", "Calls that have ended.", counter, operation, false},
	{"nexar_operation_failures_total", "Calls that have failed.", counter, operation, false},
	{"nexar_operation_bytes_total", "Bytes of calls that have succeeded: of vectors of the rank, of messages, or of arguments and results.", counter, operation, false},
	{"nexar_operation_duration_seconds", "Durations of calls that have succeeded. Of brief ones every 64th is measured, and counts 64 times. Messages have none.", histogram, operation, false},
	{"nexar_operation_wait_seconds_total", "Waiting time of calls for data of other ranks, sampled every 20 ms, for messages every 250 ms.", counter, operation, false},
	{"nexar_operation_slowest_rank", "The rank that calls on open communicators have waited for longest.", gauge, operation, false},
	{"nexar_operation_slowest_rank_wait_seconds", "The waiting time for that rank.", gauge, operation, false},
	{"nexar_operation_algorithm_info", "1, with the algorithm and executor of the latest successful call.", gauge, operation + " algorithm", false},
	{"nexar_running_operations", "Calls in progress; for a cluster at most 32 of a node.", gauge, node, false},
	{"nexar_longest_operation_seconds", "Time since the beginning of the longest of them, or 0.", gauge, node, false},

	{"nexar_links", "Links to other nodes; for a cluster at most 128 of a node.", gauge, link, false},
	{"nexar_link_unacknowledged_bytes", "Bytes that links keep until the other node has acknowledged them, to send them again over the next connection.", gauge, link, false},
	{"nexar_link_sent_bytes_total", "Bytes sent over links, without links that ended before the first scrape.", counter, link, false},
	{"nexar_link_received_bytes_total", "Bytes received over links, without links that ended before the first scrape.", counter, link, false},
	{"nexar_link_connections_total", "Connections of links. A link makes another one when its connection has ended.", counter, link, false},
	{"nexar_link_stalls_total", "Stalls of links: sent bytes made no progress for a second.", counter, link, false},
	{"nexar_stalled_links", "Links with a stall now.", gauge, node, false},
	{"nexar_longest_link_stall_seconds", "Time since the last progress of the link that stalls for longest, or 0.", gauge, node, false},
	{"nexar_longest_link_stall_peer", "The rank at the other end of that link, or -1.", gauge, node, false},
	{"nexar_dials_total", "Attempts to connect to other nodes.", counter, node, false},
	{"nexar_dial_failures_total", "Attempts that have failed.", counter, node, false},
	{"nexar_relay_frames_total", "Frames over relays of a sparse topology: forwarded, or lost at a node: without a next hop, in a full queue, or too old.", counter, node + " outcome", false},

	{"nexar_goroutines", "Goroutines of the process.", gauge, node, false},
	{"nexar_heap_bytes", "Memory of objects of the process, including those that the garbage collector has not freed yet.", gauge, node, false},
	{"nexar_pool_lent_buffers", "Buffers of the pool of collectives in use.", gauge, node, false},
	{"nexar_pool_idle_bytes", "Memory of its idle buffers.", gauge, node, false},
	{"nexar_shared_memory_bytes", "Memory that other ranks of the host can read. Pages that are not used take none.", gauge, node, false},
}
