// The device of a libibverbs for tests. It connects queue pairs of one process. It follows the specification of reliable
// connections where programs go wrong: requests complete in order; a queue pair that has failed flushes its requests, and messages
// that have arrived before stay in the completion queue; a message without a receive buffer and a write without a valid key end the
// queue pair; a write needs a memory window that is bound to the queue pair of the receiver; an event is delivered once for each
// request of one.
//
// The files are device.c, memory.c, queue.c, and fault.c with the functions fakeverbs_* for faults.
#include "fake.h"

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int live;
static struct context *opened;

void counted(int by) {
	pthread_mutex_lock(&lock);
	live += by;
	pthread_mutex_unlock(&lock);
}

// fakeverbs_live returns the number of objects.
EXPORT int fakeverbs_live(void) {
	pthread_mutex_lock(&lock);
	int n = live;
	pthread_mutex_unlock(&lock);
	return n;
}

// fakeverbs_port_down reports to all contexts that the port is down. Queue pairs stay as they are.
EXPORT void fakeverbs_port_down(void) {
	struct { uint64_t element; uint32_t kind, reserved; } event = {1, EVENT_PORT_ERR, 0};
	pthread_mutex_lock(&lock);
	for (struct context *c = opened; c; c = c->next)
		if (write(c->async_write, &event, sizeof event) != sizeof event) abort();
	pthread_mutex_unlock(&lock);
}

static char device_name[] = "fake0";

EXPORT void **ibv_get_device_list(int *n) {
	void **list = calloc(2, sizeof *list);
	list[0] = device_name;
	*n = 1;
	return list;
}
EXPORT void ibv_free_device_list(void **list) { free(list); }
EXPORT const char *ibv_get_device_name(void *d) { return d; }

EXPORT struct context *ibv_open_device(void *d) {
	int fds[2];
	if (pipe2(fds, O_CLOEXEC)) return NULL;
	struct context *c = calloc(1, sizeof *c);
	pthread_mutex_lock(&lock);
	*c = (struct context){.device = d, .alloc_mw = alloc_mw, .dealloc_mw = dealloc_mw, .poll_cq = poll_cq, .req_notify = req_notify,
		.post_send = post_send, .post_recv = post_recv, .async_fd = fds[0], .async_write = fds[1], .next = opened};
	opened = c;
	live++;
	pthread_mutex_unlock(&lock);
	return c;
}

EXPORT int ibv_close_device(struct context *c) {
	pthread_mutex_lock(&lock);
	struct context **at = &opened;
	while (*at != c) at = &(*at)->next;
	*at = c->next;
	live--;
	pthread_mutex_unlock(&lock);
	close(c->async_fd);
	close(c->async_write);
	free(c);
	return 0;
}

EXPORT void ibv_ack_async_event(void *e) { (void)e; }

struct device_attr {
	char firmware[64]; uint64_t guid, system, max_mr, pages; uint32_t vendor, part, version; int max_qp, max_wr; uint32_t caps;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mrs, max_pd, reads[5], atomic, ee, rdd, max_mw, rest[11]; uint16_t pkeys; uint8_t delay, ports;
};

EXPORT int ibv_query_device(struct context *c, struct device_attr *a) {
	(void)c;
	memset(a, 0, sizeof *a);
	a->max_qp = a->max_cq = a->max_mrs = a->max_pd = a->max_mw = 1 << 16;
	a->max_wr = 8192;
	a->max_cqe = 1 << 16;
	a->max_sge = 1;
	a->caps = 1 << 24; // memory windows of type 2B
	a->ports = 1;
	return 0;
}

struct port_attr { uint32_t state, max_mtu, mtu; int gids; uint32_t caps[4]; uint16_t pkeys, lid, sm; uint8_t rest[8], link, flags; };

EXPORT int ibv_query_port(struct context *c, uint8_t n, struct port_attr *a) {
	(void)c;
	(void)n;
	memset(a, 0, sizeof *a);
	a->state = 4; // active
	a->max_mtu = a->mtu = 5; // 4096 bytes
	a->gids = 1;
	a->link = 2; // Ethernet
	return 0;
}

struct gid { uint8_t raw[16]; uint32_t index, port, kind, interface; };

EXPORT int _ibv_query_gid_ex(struct context *c, uint32_t port, uint32_t i, struct gid *g, uint32_t flags, size_t n) {
	(void)c;
	(void)flags;
	memset(g, 0, n);
	memcpy(g->raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x01", 16);
	g->index = i;
	g->port = port;
	g->kind = 2; // RoCE v2
	return 0;
}
