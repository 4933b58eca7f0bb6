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

// The devices: see fakeverbs_device.
static struct {
	char name[8]; bool windows; int ports;
	struct { uint32_t state, mtu, link; uint16_t lid; uint8_t gid[16]; } port[2];
} devices[2] = {{"fake0", true, 1, {{.state = 4, .mtu = 5, .link = 2, .gid = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}}}}};
static int devices_n = 1;

// fakeverbs_device sets the number of devices, and the windows and the number of ports of one. It applies to devices that are opened later.
EXPORT void fakeverbs_device(int n, int device, int windows, int ports) {
	pthread_mutex_lock(&lock);
	devices_n = n;
	devices[device].windows = windows;
	devices[device].ports = ports;
	memcpy(devices[device].name, device ? "fake1" : "fake0", 6);
	pthread_mutex_unlock(&lock);
}

// fakeverbs_port sets a port, which is one of InfiniBand if it has a local identifier. mtu is the number of its value in the specification.
EXPORT void fakeverbs_port(int device, int port, int active, int mtu, int lid, const uint8_t *gid) {
	pthread_mutex_lock(&lock);
	devices[device].port[port - 1].state = active ? 4 : 1;
	devices[device].port[port - 1].mtu = mtu;
	devices[device].port[port - 1].link = lid ? 1 : 2;
	devices[device].port[port - 1].lid = lid;
	memcpy(devices[device].port[port - 1].gid, gid, 16);
	pthread_mutex_unlock(&lock);
}

// A message carries an event. Its layout differs from that of the event, so that programs need ibv_get_async_event.
struct message { uint32_t kind, element; };
struct async_event { uint64_t element; uint32_t kind; };

// report sends an event to all contexts.
static void report(uint64_t element, uint32_t kind) {
	struct message event = {kind, element};
	for (struct context *c = opened; c; c = c->next)
		if (write(c->async_write, &event, sizeof event) != sizeof event) abort();
}

// fakeverbs_port_down reports to all contexts that a port is down. Queue pairs stay as they are.
EXPORT void fakeverbs_port_down(int port) {
	pthread_mutex_lock(&lock);
	report(port, EVENT_PORT_ERR);
	pthread_mutex_unlock(&lock);
}

// fakeverbs_remove removes the devices: all contexts learn of it, requests neither arrive nor complete any more, and objects can only be
// destroyed. With 0 the devices are there again, for other contexts.
EXPORT void fakeverbs_remove(int on) {
	pthread_mutex_lock(&lock);
	set_removed(on);
	if (on) report(0, EVENT_DEVICE_FATAL);
	pthread_mutex_unlock(&lock);
}

EXPORT void **ibv_get_device_list(int *n) {
	if (call_fails("ibv_get_device_list")) return NULL;
	void **list = calloc(devices_n + 1, sizeof *list);
	for (int i = 0; i < devices_n; i++) list[i] = &devices[i];
	*n = devices_n;
	return list;
}
EXPORT void ibv_free_device_list(void **list) { free(list); }
EXPORT const char *ibv_get_device_name(void *d) { return d; }

// index_of returns the index of the device of a context.
static int index_of(struct context *c) { return c->device == &devices[1]; }

EXPORT struct context *ibv_open_device(void *d) {
	int fds[2];
	if (call_fails("ibv_open_device") || pipe2(fds, O_CLOEXEC)) return NULL;
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

EXPORT int ibv_get_async_event(struct context *c, struct async_event *e) {
	struct message m;
	if (call_fails("ibv_get_async_event")) return -1;
	if (read(c->async_fd, &m, sizeof m) != sizeof m) return -1;
	*e = (struct async_event){m.element, m.kind};
	return 0;
}

EXPORT void ibv_ack_async_event(void *e) { (void)e; }

struct device_attr {
	char firmware[64]; uint64_t guid, system, max_mr, pages; uint32_t vendor, part, version; int max_qp, max_wr; uint32_t caps;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mrs, max_pd, reads[5], atomic, ee, rdd, max_mw, rest[11]; uint16_t pkeys; uint8_t delay, ports;
};

EXPORT int ibv_query_device(struct context *c, struct device_attr *a) {
	memset(a, 0, sizeof *a);
	a->max_qp = a->max_cq = a->max_mrs = a->max_pd = a->max_mw = 1 << 16;
	a->max_wr = 8192;
	a->max_cqe = 1 << 16;
	a->max_sge = 1;
	a->caps = devices[index_of(c)].windows ? 1 << 24 : 0; // memory windows of type 2B
	a->ports = devices[index_of(c)].ports;
	return 0;
}

struct port_attr { uint32_t state, max_mtu, mtu; int gids; uint32_t caps[4]; uint16_t pkeys, lid, sm; uint8_t rest[8], link, flags; };

EXPORT int ibv_query_port(struct context *c, uint8_t n, struct port_attr *a) {
	memset(a, 0, sizeof *a);
	if (n < 1 || n > devices[index_of(c)].ports) return EINVAL;
	a->state = devices[index_of(c)].port[n - 1].state;
	a->max_mtu = a->mtu = devices[index_of(c)].port[n - 1].mtu;
	a->gids = 1;
	a->lid = devices[index_of(c)].port[n - 1].lid;
	a->link = devices[index_of(c)].port[n - 1].link;
	return 0;
}

struct gid { uint8_t raw[16]; uint32_t index, port, kind, interface; };

EXPORT int _ibv_query_gid_ex(struct context *c, uint32_t port, uint32_t i, struct gid *g, uint32_t flags, size_t n) {
	(void)flags;
	memset(g, 0, n);
	memcpy(g->raw, devices[index_of(c)].port[port - 1].gid, 16);
	g->index = i;
	g->port = port;
	g->kind = devices[index_of(c)].port[port - 1].lid ? 0 : 2; // InfiniBand or RoCE v2
	return 0;
}
