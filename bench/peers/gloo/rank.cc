// One rank of the comparison on Gloo. ../../README.md, "The protocol of the
// programs", describes the flags, the output and the measurement.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace {

struct Point {
  size_t bytes = 0;
  int iters = 0, warm = 0;
};

// value returns element i of the input of a rank. Sums over ranks are exact.
float value(int rank, size_t i) { return 1 + float((i + 17 * size_t(rank)) % 251); }

float sum(int ranks, size_t i) {
  float s = 0;
  for (int r = 0; r < ranks; r++) s += value(r, i);
  return s;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A Rank is one process. Options and buffers of an operation are made once for
// each size and reused, which the library allows.
struct Rank {
  std::shared_ptr<gloo::rendezvous::Context> context;
  int rank, ranks;
  std::vector<float> src, dst;

  size_t block(size_t bytes) const { return std::max<size_t>(bytes / 4 / size_t(ranks), 1); }
  bool talks() const { return rank == 0 || rank == ranks - 1; }
  void barrier() {
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
  }
};

using Run = std::function<void()>;

Run allReduce(Rank& me, size_t bytes) {
  auto options = std::make_shared<gloo::AllreduceOptions>(me.context);
  options->setOutput(me.dst.data(), bytes / 4);
  options->setReduceFunction(
      [](void* d, const void* a, const void* b, size_t n) { gloo::sum<float>(d, a, b, n); });
  return [=] { gloo::allreduce(*options); };
}

Run allGather(Rank& me, size_t bytes) {
  auto options = std::make_shared<gloo::AllgatherOptions>(me.context);
  options->setInput(me.src.data(), me.block(bytes));
  options->setOutput(me.dst.data(), me.block(bytes) * size_t(me.ranks));
  return [=] { gloo::allgather(*options); };
}

// reduceScatter stores this rank's block at the beginning of the input vector.
Run reduceScatter(Rank& me, size_t bytes) {
  size_t each = me.block(bytes);
  auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
      me.context, std::vector<float*>{me.dst.data()}, int(each * size_t(me.ranks)),
      std::vector<int>(size_t(me.ranks), int(each)));
  return [=] { algorithm->run(); };
}

Run broadcast(Rank& me, size_t bytes) {
  auto options = std::make_shared<gloo::BroadcastOptions>(me.context);
  options->setOutput(me.dst.data(), bytes / 4);
  options->setRoot(0);
  return [=] { gloo::broadcast(*options); };
}

Run allToAll(Rank& me, size_t bytes) {
  auto options = std::make_shared<gloo::AlltoallOptions>(me.context);
  options->setInput(me.src.data(), me.block(bytes) * size_t(me.ranks));
  options->setOutput(me.dst.data(), me.block(bytes) * size_t(me.ranks));
  return [=] { gloo::alltoall(*options); };
}

Run barrier(Rank& me, size_t) {
  return [&me] { me.barrier(); };
}

Run sendRecv(Rank& me, size_t bytes) {
  if (!me.talks()) return [] {};
  int other = me.ranks - 1 - me.rank;
  bool first = me.rank == 0;
  const uint64_t slot = 1 << 20;  // Collectives use smaller numbers.
  std::shared_ptr<gloo::transport::UnboundBuffer> out =
      me.context->createUnboundBuffer(me.src.data(), bytes / 4 * 4);
  std::shared_ptr<gloo::transport::UnboundBuffer> in =
      me.context->createUnboundBuffer(me.dst.data(), bytes / 4 * 4);
  return [=] {
    if (first) {
      out->send(other, slot);
      out->waitSend();
    }
    in->recv(other, slot);
    in->waitRecv();
    if (!first) {
      out->send(other, slot);
      out->waitSend();
    }
  };
}

const std::map<std::string, Run (*)(Rank&, size_t)> operations = {
    {"all_reduce", allReduce}, {"all_gather", allGather}, {"reduce_scatter", reduceScatter},
    {"broadcast", broadcast},  {"all_to_all", allToAll},  {"barrier", barrier},
    {"send_recv", sendRecv},
};

bool reducesInPlace(const std::string& op) { return op == "all_reduce" || op == "reduce_scatter"; }

// wanted returns the expected value of element i of the result.
float wanted(const Rank& me, const std::string& op, size_t each, size_t i) {
  if (op == "all_reduce") return sum(me.ranks, i);
  if (op == "reduce_scatter") return sum(me.ranks, size_t(me.rank) * each + i);
  if (op == "all_gather") return value(int(i / each), i % each);
  if (op == "all_to_all") return value(int(i / each), size_t(me.rank) * each + i % each);
  if (op == "broadcast") return value(0, i);
  return value(me.ranks - 1 - me.rank, i);
}

size_t results(const Rank& me, const std::string& op, size_t bytes) {
  if (op == "barrier" || (op == "send_recv" && !me.talks())) return 0;
  if (op == "reduce_scatter") return me.block(bytes);
  if (op == "all_gather" || op == "all_to_all") return me.block(bytes) * size_t(me.ranks);
  return bytes / 4;
}

// wrong runs an operation once and returns the number of wrong elements.
size_t wrong(Rank& me, const std::string& op, size_t bytes, const Run& run) {
  size_t all = std::max(bytes / 4, me.block(bytes) * size_t(me.ranks)), bad = 0;
  for (size_t i = 0; i < all; i++) {
    me.src[i] = value(me.rank, i);
    me.dst[i] = reducesInPlace(op) || (op == "broadcast" && me.rank == 0) ? me.src[i] : 0;
  }
  me.barrier();
  run();
  for (size_t i = 0; i < results(me, op, bytes); i++)
    bad += me.dst[i] != wanted(me, op, me.block(bytes), i);
  std::fill_n(me.src.begin(), all, 0.f);
  std::fill_n(me.dst.begin(), all, 0.f);
  return bad;
}

double once(Rank& me, const std::string& op, const Run& run) {
  me.barrier();
  double began = now();
  run();
  double took = now() - began;
  return op == "send_recv" ? took / 2 : took;
}

// agreed returns rank 0's number on all ranks.
int agreed(Rank& me, int n) {
  gloo::BroadcastOptions options(me.context);
  options.setOutput(&n, 1);
  options.setRoot(0);
  gloo::broadcast(options);
  return n;
}

// measure measures one operation at one size and prints its line.
void measure(Rank& me, const std::string& op, Point p, double budget) {
  Run run = operations.at(op)(me, p.bytes);
  size_t bad = wrong(me, op, p.bytes, run);
  for (int i = 0; i < p.warm; i++) once(me, op, run);
  std::vector<double> times;
  double began = now();
  for (int iters = p.iters, done = 0, check = 3; done < iters;) {
    times.push_back(once(me, op, run));
    if (++done == check && done < iters) {  // Rank 0 computes how many fit into the budget.
      double fit = budget / ((now() - began) / done);
      iters = agreed(me, fit < iters ? std::max(done, int(fit)) : iters);
      check *= 2;
    }
  }
  std::sort(times.begin(), times.end());
  size_t n = times.size();
  double median = (times[(n - 1) / 2] + times[n / 2]) / 2;
  printf("{\"op\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"rank\":%d,\"iters\":%zu,\"median_us\":%.3f,\"wrong\":%zu}\n",
         op.c_str(), p.bytes, me.ranks, me.rank, n, median * 1e6, bad);
  fflush(stdout);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<Point> parsePoints(const std::string& text) {
  std::vector<Point> points;
  for (const auto& part : split(text)) {
    Point p;
    if (sscanf(part.c_str(), "%zu:%d:%d", &p.bytes, &p.iters, &p.warm) != 3 || p.iters < 3)
      throw std::runtime_error("-points " + part + ": must be BYTES:ITERATIONS:WARMUPS, with at least 3 iterations");
    points.push_back(p);
  }
  return points;
}

int run(std::map<std::string, std::string> flags) {
  auto points = parsePoints(flags["-points"]);
  if (points.empty()) throw std::runtime_error("-points is missing: BYTES:ITERATIONS:WARMUPS,...");
  gloo::transport::tcp::attr attr;
  attr.iface = flags["-iface"];
  Rank me;
  me.rank = std::stoi(flags["-rank"]);
  me.ranks = std::stoi(flags["-ranks"]);
  me.context = std::make_shared<gloo::rendezvous::Context>(me.rank, me.ranks);
  gloo::rendezvous::FileStore store(flags["-store"]);
  auto device = gloo::transport::tcp::CreateDevice(attr);
  me.context->connectFullMesh(store, device);

  size_t floats = 0;
  for (auto p : points) floats = std::max(floats, p.bytes / 4);
  floats += size_t(me.ranks);  // A block has at least one element for each rank.
  me.src.assign(floats, 0);
  me.dst.assign(floats, 0);
  if (me.rank == 0) printf("{\"about\":\"Gloo, TCP\"}\n");
  double budget = std::stod(flags["-budget"]);
  for (const auto& op : split(flags["-ops"])) {
    if (!operations.count(op)) throw std::runtime_error("-ops: unknown operation " + op);
    if (op == "barrier")
      measure(me, op, {0, points[0].iters, points[0].warm}, budget);
    else
      for (auto p : points) measure(me, op, p, budget);
  }
  me.barrier();  // A rank must not close its sockets while others still use them.
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {{"-budget", "1"}, {"-iface", "lo"}};
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  try {
    return run(flags);
  } catch (const std::exception& e) {
    fprintf(stderr, "rank: %s\n", e.what());
    return 1;
  }
}
