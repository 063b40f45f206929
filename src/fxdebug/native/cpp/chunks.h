// Work on a large tensor, in pieces that torch's own threads share.
#pragma once

#include <cstdint>
#include <functional>

namespace fxdebug {

// Calls `work` for each number below `count`, in torch.get_num_threads() threads; returns when all is done.
// `work` touches no Python object. What it throws is thrown here.
void in_threads(int64_t count, const std::function<void(int64_t)>& work);

}  // namespace fxdebug
