// A process of Gloo on one of the shaped hosts: broadcasts from rank 0, as hosts_openmpi.py has them.
//
//   driver <rank> <ranks> <directory to meet in> <warm> <turns> <limit, s> <size>...
//
// Rank 0 prints what a program of hosts_systems.py prints.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace {

using Clock = std::chrono::steady_clock;  // The monotonic one, which all processes share.

constexpr double kAheadSeconds = 0.2;
constexpr auto kTimeout = std::chrono::seconds(120);

double Now() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

void WaitUntil(double moment) {
  double left = moment - Now();
  if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
}

uint32_t Content(size_t index, uint32_t seed) {
  return static_cast<uint32_t>(index) * 2654435761u + seed;
}

class Rank {
 public:
  Rank(int rank, int ranks, const std::string& directory) : rank_(rank), ranks_(ranks) {
    gloo::transport::tcp::attr attributes;
    attributes.iface = "eth0";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(directory);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->setTimeout(kTimeout);
    context->connectFullMesh(store, device);
    context_ = context;
  }

  template <typename T>
  void Broadcast(T* values, size_t count) {
    gloo::BroadcastOptions options(context_);
    options.setRoot(0);
    options.setOutput(values, count);
    gloo::broadcast(options);
  }

  void Barrier() {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

  std::vector<double> Gather(double value) {
    std::vector<double> input{value}, all(ranks_);
    gloo::AllgatherOptions options(context_);
    options.setInput(input.data(), 1);
    options.setOutput(all.data(), all.size());
    gloo::allgather(options);
    return all;
  }

  // One broadcast of a buffer: when it was begun, and when the last one had all of it.
  std::pair<double, double> Once(std::vector<uint32_t>& buffer, uint32_t seed) {
    for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = rank_ == 0 ? Content(i, seed) : 0;
    Barrier();
    double begin = Now() + kAheadSeconds;
    Broadcast(&begin, 1);
    WaitUntil(begin);
    Broadcast(buffer.data(), buffer.size());
    double end = Now();
    auto ends = Gather(end);
    for (size_t i = 0; i < buffer.size(); ++i) {
      if (buffer[i] != Content(i, seed)) throw std::runtime_error("a rank has other bytes");
    }
    Barrier();
    return {begin, *std::max_element(ends.begin(), ends.end())};
  }

  void Run(size_t size, int warm, int turns, double limit) {
    std::vector<uint32_t> buffer(size / 4, 1);
    uint32_t seed = 1;
    double begun = Now();
    for (bool counts : {false, true}) {
      double until = begun + (counts ? limit : limit / 2);
      for (int turn = 0; turn < (counts ? turns : warm); ++turn) {
        double goes_on = turn == 0 || Now() < until;
        Broadcast(&goes_on, 1);
        if (goes_on == 0) break;
        auto [begin, end] = Once(buffer, seed++);
        if (rank_ == 0 && counts) {
          std::printf("{\"event\": \"turn\", \"size\": %zu, \"begin\": %.9f, \"end\": %.9f}\n", size, begin, end);
          std::fflush(stdout);
        }
      }
    }
  }

 private:
  int rank_;
  int ranks_;
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace

int main(int count, char** words) {
  if (count < 8) return 2;
  int number = std::atoi(words[1]);
  try {
    Rank rank(number, std::atoi(words[2]), words[3]);
    if (number == 0) {
      std::printf("{\"event\": \"started\", \"version\": \"%d.%d.%d\"}\n", GLOO_VERSION_MAJOR,
                  GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
    }
    for (int i = 7; i < count; ++i) {
      rank.Run(std::stoul(words[i]), std::atoi(words[4]), std::atoi(words[5]), std::atof(words[6]));
    }
    if (number == 0) std::printf("{\"event\": \"done\"}\n");
    rank.Barrier();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", number, error.what());
    return 1;
  }
  return 0;
}
