// SPDX-License-Identifier: Apache-2.0
// What gRPC's own C++ library takes for the same messages: a callback server whose models hand their
// input on, or the first 4,000 bytes of it (names with "classes"), which tests/bench/doors compiles and
// measures beside inferd. Prints "ready ADDRESS".
#include <cstdio>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "inference.grpc.pb.h"

namespace {

constexpr int kStreams = 100, kMessageBytes = 1 << 30, kClassBytes = 4000;

class Identity final : public inference::GRPCInferenceService::CallbackService {
    grpc::ServerUnaryReactor *ModelInfer(grpc::CallbackServerContext *context,
                                         const inference::ModelInferRequest *request,
                                         inference::ModelInferResponse *response) override
    {
        response->set_model_name(request->model_name());
        response->set_id(request->id());
        for (const auto &input : request->inputs()) {
            auto *output = response->add_outputs();
            output->set_name("output");
            output->set_datatype(input.datatype());
            *output->mutable_shape() = input.shape();
        }
        // The request is this call's alone: its bytes are moved, which is more than users can do.
        auto *raw = const_cast<inference::ModelInferRequest *>(request);
        response->mutable_raw_output_contents()->Swap(raw->mutable_raw_input_contents());
        if (request->model_name().find("classes") != std::string::npos)
            response->mutable_raw_output_contents(0)->resize(kClassBytes);
        auto *reactor = context->DefaultReactor();
        reactor->Finish(grpc::Status::OK);
        return reactor;
    }
};

} // namespace

int main()
{
    Identity service;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    builder.SetMaxReceiveMessageSize(kMessageBytes);
    builder.SetMaxSendMessageSize(kMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreams);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (!server)
        return 1;
    std::printf("ready 127.0.0.1:%d\n", port);
    std::fflush(stdout);
    server->Wait();
}
