/* One rank of the comparison on MPI. ../../README.md, "The protocol of the
 * programs", describes the flags, the output and the measurement. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES_MAX 64
#define RUNS_MAX (1 << 20)

struct rank {
  int rank, ranks, untouched, runs;
  double budget, warm, *times;
  float *dst, *src;
};

/* value returns element i of the input of a rank. Sums over ranks are exact. */
static float value(int rank, size_t i) { return 1 + (float)((i + 17 * (size_t)rank) % 251); }

static float sum(int ranks, size_t i) {
  float s = 0;
  for (int r = 0; r < ranks; r++) s += value(r, i);
  return s;
}

/* block returns the number of elements of one rank's block. */
static size_t block(const struct rank *me, size_t bytes) {
  size_t n = bytes / sizeof(float) / (size_t)me->ranks;
  return n ? n : 1;
}

static void all_reduce(struct rank *me, size_t bytes) {
  MPI_Allreduce(MPI_IN_PLACE, me->dst, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_gather(struct rank *me, size_t bytes) {
  int n = (int)block(me, bytes);
  MPI_Allgather(me->src, n, MPI_FLOAT, me->dst, n, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(struct rank *me, size_t bytes) {
  MPI_Reduce_scatter_block(me->src, me->dst, (int)block(me, bytes), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void broadcast(struct rank *me, size_t bytes) {
  MPI_Bcast(me->dst, (int)(bytes / 4), MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void all_to_all(struct rank *me, size_t bytes) {
  int n = (int)block(me, bytes);
  MPI_Alltoall(me->src, n, MPI_FLOAT, me->dst, n, MPI_FLOAT, MPI_COMM_WORLD);
}

static void barrier(struct rank *me, size_t bytes) {
  (void)me, (void)bytes;
  MPI_Barrier(MPI_COMM_WORLD);
}

static void send_recv(struct rank *me, size_t bytes) {
  int n = (int)(bytes / 4), last = me->ranks - 1;
  if (me->rank == 0) {
    MPI_Send(me->src, n, MPI_FLOAT, last, 0, MPI_COMM_WORLD);
    MPI_Recv(me->dst, n, MPI_FLOAT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (me->rank == last) {
    MPI_Recv(me->dst, n, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(me->src, n, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
  }
}

struct op {
  const char *name;
  void (*run)(struct rank *, size_t);
};

static const struct op ops[] = {
    {"all_reduce", all_reduce}, {"all_gather", all_gather}, {"reduce_scatter", reduce_scatter},
    {"broadcast", broadcast},   {"all_to_all", all_to_all}, {"barrier", barrier},
    {"send_recv", send_recv},
};

static int is(const struct op *op, const char *name) { return strcmp(op->name, name) == 0; }

/* clear sets the vectors to zero, so that repeated sums do not grow. */
static void clear(struct rank *me, size_t bytes) {
  size_t all = bytes + (size_t)me->ranks * sizeof(float);
  memset(me->src, 0, all);
  memset(me->dst, 0, all);
}

/* wrong runs an operation once and returns the number of wrong elements. */
static size_t wrong(struct rank *me, const struct op *op, size_t bytes) {
  size_t count = bytes / 4, each = block(me, bytes), bad = 0;
  int n = me->ranks, last = n - 1;
  for (size_t i = 0; i < each * (size_t)n || i < count; i++) {
    me->src[i] = value(me->rank, i);
    me->dst[i] = is(op, "all_reduce") || (is(op, "broadcast") && me->rank == 0) ? me->src[i] : 0;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  op->run(me, bytes);
  if (is(op, "all_reduce"))
    for (size_t i = 0; i < count; i++) bad += me->dst[i] != sum(n, i);
  if (is(op, "broadcast"))
    for (size_t i = 0; i < count; i++) bad += me->dst[i] != value(0, i);
  if (is(op, "reduce_scatter"))
    for (size_t i = 0; i < each; i++) bad += me->dst[i] != sum(n, (size_t)me->rank * each + i);
  if (is(op, "all_gather"))
    for (size_t i = 0; i < each * (size_t)n; i++) bad += me->dst[i] != value((int)(i / each), i % each);
  if (is(op, "all_to_all"))
    for (size_t i = 0; i < each * (size_t)n; i++)
      bad += me->dst[i] != value((int)(i / each), (size_t)me->rank * each + i % each);
  if (is(op, "send_recv") && (me->rank == 0 || me->rank == last))
    for (size_t i = 0; i < count; i++) bad += me->dst[i] != value(last - me->rank, i);
  clear(me, bytes);
  return bad;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* rewrite writes the input of an operation anew, so that no rank finds it in its own cache. */
static void rewrite(struct rank *me, const struct op *op, size_t bytes) {
  if (is(op, "broadcast") && me->rank != 0) return;
  int in_place = is(op, "all_reduce") || is(op, "broadcast");
  float *input = in_place ? me->dst : me->src;
  size_t all = block(me, bytes) * (size_t)me->ranks, n = is(op, "all_gather") ? block(me, bytes) : bytes / 4;
  if (is(op, "all_to_all") || is(op, "reduce_scatter")) n = all;
  for (size_t i = 0; i < n; i++) input[i] = 1;
}

static double once(struct rank *me, const struct op *op, size_t bytes, int untouched) {
  if (!untouched) rewrite(me, op, bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  double began = MPI_Wtime();
  op->run(me, bytes);
  double took = MPI_Wtime() - began;
  return is(op, "send_recv") ? took / 2 : took;
}

/* repeat fills me->times with runs until the budget is spent. */
static void repeat(struct rank *me, const struct op *op, size_t bytes, int untouched, double budget) {
  double began = MPI_Wtime();
  me->runs = 0;
  for (int next = 3; next > 0;) {
    double start = MPI_Wtime();
    for (int i = 0; i < next; i++) me->times[me->runs++] = once(me, op, bytes, untouched);
    double now = MPI_Wtime(), fit = (budget - (now - began)) / ((now - start) / next);
    int most = 2 * me->runs < RUNS_MAX - me->runs ? 2 * me->runs : RUNS_MAX - me->runs;
    next = fit < most ? (int)fit : most; /* Rank 0 decides. */
    MPI_Bcast(&next, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
}

/* measure measures one operation at one size and prints its lines. */
static void measure(struct rank *me, const struct op *op, size_t bytes) {
  size_t bad = wrong(me, op, bytes);
  for (int untouched = 0; untouched <= me->untouched && !(untouched && bytes == 0); untouched++) {
    if (untouched) clear(me, bytes);
    if (me->warm > 0) repeat(me, op, bytes, untouched, me->warm);
    repeat(me, op, bytes, untouched, me->budget);
    int n = me->runs;
    qsort(me->times, (size_t)n, sizeof *me->times, ascending);
    double median = (me->times[(n - 1) / 2] + me->times[n / 2]) / 2;
    printf("{\"op\":\"%s\",\"bytes\":%zu,\"untouched\":%s,\"ranks\":%d,\"rank\":%d,\"iters\":%d,\"median_us\":%.3f,\"wrong\":%zu}\n",
           op->name, bytes, untouched ? "true" : "false", me->ranks, me->rank, n, median * 1e6, bad);
    fflush(stdout);
  }
}

static int parse_sizes(char *text, size_t *sizes) {
  int n = 0;
  for (char *p = strtok(text, ","); p && n < SIZES_MAX; p = strtok(NULL, ","), n++)
    if (sscanf(p, "%zu", &sizes[n]) != 1 || sizes[n] < 4) return -1;
  return n;
}

int main(int argc, char **argv) {
  struct rank me = {.budget = 1};
  size_t sizes[SIZES_MAX];
  char *names = "", version[MPI_MAX_LIBRARY_VERSION_STRING];
  int n = 0, length;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &me.ranks);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "-ops")) names = argv[i + 1];
    if (!strcmp(argv[i], "-sizes")) n = parse_sizes(argv[i + 1], sizes);
    if (!strcmp(argv[i], "-budget")) me.budget = atof(argv[i + 1]);
    if (!strcmp(argv[i], "-warm")) me.warm = atof(argv[i + 1]);
    if (!strcmp(argv[i], "-untouched")) me.untouched = atoi(argv[i + 1]) != 0;
  }
  if (n <= 0) {
    fprintf(stderr, "rank: -sizes BYTES,... with at least 4 bytes each\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  size_t floats = 0;
  for (int i = 0; i < n; i++)
    if (sizes[i] / 4 > floats) floats = sizes[i] / 4;
  floats += (size_t)me.ranks; /* A block has at least one element for each rank. */
  me.src = calloc(floats, sizeof(float));
  me.dst = calloc(floats, sizeof(float));
  me.times = malloc(RUNS_MAX * sizeof *me.times);
  MPI_Get_library_version(version, &length);
  version[strcspn(version, ",\n")] = 0;
  for (char *c = version; *c; c++)
    if (*c == '\t' || *c == '"') *c = ' ';
  if (me.rank == 0) printf("{\"about\":\"%s\"}\n", version), fflush(stdout);

  for (char *name = strtok(names, ","); name; name = strtok(NULL, ",")) {
    const struct op *op = NULL;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
      if (is(&ops[i], name)) op = &ops[i];
    if (!op) {
      fprintf(stderr, "rank: -ops: unknown operation %s\n", name);
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (is(op, "barrier")) measure(&me, op, 0);
    for (int i = 0; i < n && !is(op, "barrier"); i++) measure(&me, op, sizes[i]);
  }
  MPI_Finalize();
  return 0;
}
