#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gRPC with clients that know nothing of inferd: tritonclient (blocking, asyncio, streams), and
grpcio's own health checks and reflection.

    test_grpc.py INFERD INFERCTL
"""
import asyncio
import queue
import re
import shutil
import sys
import time
import unittest

import harness

try:
    import grpc
    import numpy as np
    import tritonclient.grpc as triton
    import tritonclient.grpc.aio as triton_aio
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase)
    from tritonclient.grpc import service_pb2, service_pb2_grpc
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

SMALL = np.arange(4, dtype=np.float32).reshape(1, 4)


def start(models=("copy", "pair", "wide", "fixed"), config=None, arguments=(), **more):
    plans = {name: harness.plan(name, "1") if name == "fixed" else harness.plan(name)
             for name in models}
    return harness.Server(plans, config, arguments=["--grpc", "127.0.0.1:0", *arguments], **more)


def door(server):
    return re.search(r"(?m)^ready (\S+) \(grpc\)$", server.log()).group(1)


def tensor(name, data, datatype="FP32", module=triton):
    given = module.InferInput(name, list(data.shape), datatype)
    given.set_data_from_numpy(data)
    return given


def code_of(failure):
    return re.search(r"\w+$", str(failure.status())).group(0)


class Grpc(harness.Served):
    @classmethod
    def setUpClass(cls):
        cls.server = start()
        cls.address = door(cls.server)

    def setUp(self):
        self.client = triton.InferenceServerClient(self.address)
        self.addCleanup(self.client.close)
        channel = grpc.insecure_channel(self.address, options=[
            ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
        self.addCleanup(channel.close)
        self.channel = channel
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def refused(self, code, words, call, *arguments, **more):
        with self.assertRaises(triton.InferenceServerException) as caught:
            call(*arguments, **more)
        self.assertEqual(code_of(caught.exception), code, caught.exception)
        for word in words:
            self.assertIn(word, caught.exception.message())

    def fails(self, code, words, call, *arguments, **more):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*arguments, **more)
        self.assertEqual(caught.exception.code().name, code, caught.exception.details())
        for word in words:
            self.assertIn(word, caught.exception.details())

    # --- inference ---

    def test_an_inference(self):
        result = self.client.infer("copy", [tensor("x", SMALL)], request_id="my request")
        np.testing.assert_array_equal(result.as_numpy("y"), SMALL)
        response = result.get_response()
        self.assertEqual((response.id, response.model_name, response.model_version),
                         ("my request", "copy", "1"))
        self.assertEqual(len(response.raw_output_contents), 1)

    def test_several_tensors_and_outputs_by_name(self):
        a, b = (np.random.rand(3, 2).astype(np.float32) for _ in range(2))
        n = np.arange(3).reshape(3, 1)
        inputs = [tensor("n", n, "INT64"), tensor("a", a), tensor("b", b)]
        result = self.client.infer("pair", inputs)
        np.testing.assert_array_equal(result.as_numpy("sum"), a + b)
        np.testing.assert_array_equal(result.as_numpy("m"), n)
        wanted = [triton.InferRequestedOutput("m"), triton.InferRequestedOutput("same")]
        result = self.client.infer("pair", inputs, outputs=wanted)
        self.assertEqual([o.name for o in result.get_response().outputs], ["m", "same"])
        np.testing.assert_array_equal(result.as_numpy("same"), a)
        self.assertIsNone(result.as_numpy("sum"))

    def test_typed_contents(self):
        request = service_pb2.ModelInferRequest(model_name="copy")
        given = request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
        given.contents.fp32_contents.extend([1, 2, 3, 4])
        response = self.stub.ModelInfer(request)
        self.assertEqual(np.frombuffer(response.raw_output_contents[0], np.float32).tolist(),
                         [1, 2, 3, 4])
        request.raw_input_contents.append(SMALL.tobytes())
        self.fails("INVALID_ARGUMENT", ["together"], self.stub.ModelInfer, request)

    def test_large_messages_go_through(self):
        for n in (1, 3, 8):
            x = np.random.rand(n, 1 << 18).astype(np.float32)
            result = self.client.infer("wide", [tensor("x", x)])
            np.testing.assert_array_equal(result.as_numpy("y"), x)

    def test_payloads_begin_anywhere_in_their_messages(self):
        x = np.random.rand(5, 1 << 18).astype(np.float32)
        for k in range(0, 64, 3):
            data = x[:5 if k % 4 == 0 else 1]
            result = self.client.infer("wide", [tensor("x", data)], request_id="i" * k)
            np.testing.assert_array_equal(result.as_numpy("y"), data)

    def test_what_is_refused(self):
        x = tensor("x", SMALL)
        self.refused("NOT_FOUND", ["no model 'nope'", "'copy'"], self.client.infer, "nope", [x])
        self.refused("INVALID_ARGUMENT", ["'x' is missing"], self.client.infer, "copy",
                     [tensor("z", SMALL)])
        self.refused("INVALID_ARGUMENT", ["[1,2]"], self.client.infer, "fixed",
                     [tensor("x", SMALL[:, :2])])
        self.refused("INVALID_ARGUMENT", ["sequence"], self.client.infer, "copy", [x],
                     sequence_id=7, sequence_start=True)
        shared = triton.InferInput("x", [1, 4], "FP32")
        shared.set_shared_memory("region", 16)
        self.refused("INVALID_ARGUMENT", ["shared memory"], self.client.infer, "copy", [shared])
        words = triton.InferInput("x", [1, 4], "BYTES")
        words.set_data_from_numpy(np.array([[b"a", b"b", b"c", b"d"]], dtype=np.object_))
        self.refused("INVALID_ARGUMENT", ["BYTES"], self.client.infer, "copy", [words])
        self.client.infer("copy", [x])

    def test_priority_and_timeout_are_taken(self):
        for priority in (0, 1, 4, 99):
            self.client.infer("copy", [tensor("x", SMALL)], priority=priority, timeout=10000000)

    def test_compressed_requests(self):
        x = np.zeros((8, 1 << 18), np.float32)
        x[:, ::100] = np.random.rand(8, 2622)
        for method in ("gzip", "deflate"):
            for data in (x, x[:1]):
                result = self.client.infer("wide", [tensor("x", data)],
                                           compression_algorithm=method)
                np.testing.assert_array_equal(result.as_numpy("y"), data)

    def test_a_message_beyond_the_limit_is_refused(self):
        x = np.zeros((17, 1 << 18, 4), np.float32)
        request = service_pb2.ModelInferRequest(model_name="wide")
        request.inputs.add(name="x", datatype="FP32", shape=[17 * 4, 1 << 18])
        request.raw_input_contents.append(x.tobytes())
        self.fails("RESOURCE_EXHAUSTED", ["the limit is"], self.stub.ModelInfer, request)
        self.client.infer("copy", [tensor("x", SMALL)])

    def test_classification(self):
        x = np.array([[0, 3, -1, 2], [9, 8, 7, 9]], np.float32)
        wanted = [triton.InferRequestedOutput("y", class_count=2)]
        result = self.client.infer("copy", [tensor("x", x)], outputs=wanted)
        self.assertEqual(result.as_numpy("y").tolist(),
                         [[b"3.000000:1", b"2.000000:3"], [b"9.000000:0", b"9.000000:3"]])
        self.assertEqual(result.get_output("y").datatype, "BYTES")
        wanted = [triton.InferRequestedOutput("y", class_count=5000)]
        self.refused("INVALID_ARGUMENT", ["5000 classes"], self.client.infer, "copy",
                     [tensor("x", x)], outputs=wanted)

    # --- streams ---

    def stream(self, requests, answers):
        got = queue.Queue()
        self.client.start_stream(lambda result, error: got.put((result, error)))
        for model, data, name in requests:
            self.client.async_stream_infer(model, [tensor("x", data)], request_id=name)
        out = [got.get(timeout=harness.PATIENCE) for _ in range(answers)]
        self.client.stop_stream()
        return out

    def test_a_stream_answers_in_order(self):
        requests = []
        for i in range(40):
            wide = i % 5 == 0
            data = np.full((1, 1 << 18 if wide else 4), i, np.float32)
            requests.append(("wide" if wide else "copy", data, f"number {i}"))
        for i, (result, error) in enumerate(self.stream(requests, 40)):
            self.assertIsNone(error)
            self.assertEqual(result.get_response().id, f"number {i}")
            np.testing.assert_array_equal(result.as_numpy("y"), requests[i][1])

    def test_an_error_does_not_end_a_stream(self):
        out = self.stream([("copy", SMALL, "a"), ("nope", SMALL, "b"), ("copy", SMALL, "c")], 3)
        self.assertEqual([e is None for _, e in out], [True, False, True])
        self.assertIn("no model 'nope'", out[1][1].message())
        self.assertEqual(out[2][0].get_response().id, "c")

    def test_an_error_in_a_stream_names_its_request(self):
        def requests():
            for name, model in (("first", "nope"), ("second", "copy")):
                request = service_pb2.ModelInferRequest(model_name=model, id=name)
                request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
                request.raw_input_contents.append(SMALL.tobytes())
                yield request
        first, second = self.stub.ModelStreamInfer(requests())
        self.assertEqual((first.infer_response.id, second.infer_response.id), ("first", "second"))
        self.assertIn("nope", first.error_message)
        self.assertEqual(second.error_message, "")

    # --- asyncio, many at once ---

    def test_asyncio(self):
        async def run():
            async with triton_aio.InferenceServerClient(self.address) as client:
                async def one(i):
                    x = np.full((1 + i % 3, 4), i, np.float32)
                    result = await client.infer("copy", [tensor("x", x, module=triton_aio)])
                    np.testing.assert_array_equal(result.as_numpy("y"), x)
                await asyncio.gather(*(one(i) for i in range(300)))
                self.assertTrue(await client.is_server_ready())

                async def feed():
                    for i in range(10):
                        yield {"model_name": "copy", "request_id": str(i),
                               "inputs": [tensor("x", SMALL * i, module=triton_aio)]}
                n = 0
                async for result, error in client.stream_infer(feed()):
                    self.assertIsNone(error)
                    self.assertEqual(result.get_response().id, str(n))
                    n += 1
                self.assertEqual(n, 10)
        asyncio.run(run())

    def test_many_threads_and_large_replies(self):
        x = np.random.rand(4, 1 << 18).astype(np.float32)

        def work():
            with triton.InferenceServerClient(self.address) as client:
                for _ in range(5):
                    result = client.infer("wide", [tensor("x", x)])
                    np.testing.assert_array_equal(result.as_numpy("y"), x)
                    client.infer("copy", [tensor("x", SMALL)])
        threads = [harness.Background(work) for _ in range(6)]
        for thread in threads:
            thread.finish()

    def test_calls_that_are_cancelled(self):
        x = np.random.rand(8, 1 << 18).astype(np.float32)
        for i in range(30):
            call = self.client.async_infer("wide", [tensor("x", x)], lambda result, error: None)
            time.sleep(i % 3 * 0.004)
            call.cancel()
        np.testing.assert_array_equal(
            self.client.infer("copy", [tensor("x", SMALL)]).as_numpy("y"), SMALL)

    def test_a_deadline_that_has_passed(self):
        request = service_pb2.ModelInferRequest(model_name="wide")
        request.inputs.add(name="x", datatype="FP32", shape=[8, 1 << 18])
        request.raw_input_contents.append(bytes(8 << 20))
        self.fails("DEADLINE_EXCEEDED", [], self.stub.ModelInfer, request, timeout=0.0005)

    # --- questions ---

    def test_server_and_models(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("copy", "1"))
        with self.assertRaises(triton.InferenceServerException):
            self.client.is_model_ready("nope")
        server = self.client.get_server_metadata()
        self.assertEqual(server.name, "inferd")
        self.assertIn("statistics", server.extensions)
        model = self.client.get_model_metadata("pair")
        self.assertEqual([(t.name, t.datatype, list(t.shape)) for t in model.inputs],
                         [("a", "FP32", [-1, 2]), ("b", "FP32", [-1, 2]), ("n", "INT64", [-1, 1])])
        self.assertEqual((list(model.versions), len(model.outputs)), (["1"], 3))
        config = self.client.get_model_config("pair").config
        self.assertEqual((config.name, config.max_batch_size, config.backend),
                         ("pair", 8, "inferd"))
        self.assertEqual([(t.name, t.data_type, list(t.dims)) for t in config.input],
                         [("a", 11, [2]), ("b", 11, [2]), ("n", 9, [1])])
        self.assertTrue(config.HasField("dynamic_batching"))
        fixed = self.client.get_model_config("fixed").config
        self.assertEqual((fixed.max_batch_size, list(fixed.output[0].dims)), (0, [2, 3]))
        self.assertFalse(fixed.HasField("dynamic_batching"))
        index = self.client.get_model_repository_index()
        self.assertEqual([(m.name, m.state) for m in index.models],
                         [(n, "READY") for n in ("copy", "fixed", "pair", "wide")])

    def test_statistics(self):
        self.client.infer("copy", [tensor("x", SMALL)])
        stats = self.client.get_inference_statistics("copy").model_stats[0]
        self.assertGreaterEqual(stats.inference_stats.success.count, 1)
        self.assertGreater(stats.inference_stats.compute_infer.ns, 0)
        self.assertEqual(len(self.client.get_inference_statistics().model_stats), 4)

    def test_settings_of_the_log(self):
        before = self.client.get_log_settings().settings
        self.assertTrue(before["log_info"].bool_param)
        after = self.client.get_log_settings().settings
        self.assertEqual(before, after)
        self.assertEqual(list(self.client.get_trace_settings().settings["trace_level"].value),
                         ["OFF"])

    def test_orders_take_a_right(self):
        self.refused("PERMISSION_DENIED", ["loading"], self.client.load_model, "copy")
        self.refused("PERMISSION_DENIED", ["unloading"], self.client.unload_model, "copy")

    def test_a_method_that_there_is_not(self):
        call = self.channel.unary_unary("/inference.GRPCInferenceService/Nothing")
        self.fails("UNIMPLEMENTED", ["no such method"], call, b"")
        call = self.channel.unary_unary("/other.Service/Method")
        self.fails("UNIMPLEMENTED", ["no such method"], call, b"")

    def test_a_text_beyond_ascii_comes_back(self):
        request = service_pb2.ModelInferRequest(model_name="copy")
        request.inputs.add(name="x%é", datatype="FP32", shape=[1, 4])
        request.raw_input_contents.append(SMALL.tobytes())
        self.fails("INVALID_ARGUMENT", ["x%é"], self.stub.ModelInfer, request)

    # --- health ---

    def test_health(self):
        stub = health_pb2_grpc.HealthStub(self.channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        for service in ("", "inference.GRPCInferenceService"):
            reply = stub.Check(health_pb2.HealthCheckRequest(service=service))
            self.assertEqual(reply.status, serving)
        self.fails("NOT_FOUND", ["other"], stub.Check,
                   health_pb2.HealthCheckRequest(service="other"))
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        self.assertEqual(next(watch).status, serving)
        watch.cancel()
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="other"))
        self.assertEqual(next(watch).status, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        watch.cancel()


    # --- reflection ---

    def test_reflection(self):
        for package in (reflection_pb2, "grpc.reflection.v1"):
            request, answers = reflection_pb2.ServerReflectionRequest, None
            if package is reflection_pb2:
                ask = reflection_pb2_grpc.ServerReflectionStub(self.channel).ServerReflectionInfo
            else:
                ask = self.channel.stream_stream(
                    f"/{package}.ServerReflection/ServerReflectionInfo",
                    request_serializer=request.SerializeToString,
                    response_deserializer=reflection_pb2.ServerReflectionResponse.FromString)
            answers = list(ask(iter([
                request(list_services="*"),
                request(file_containing_symbol="inference.GRPCInferenceService.ModelInfer"),
                request(file_containing_symbol="inference.ModelInferRequest.InferInputTensor"),
                request(file_by_filename="health.proto"),
                request(file_containing_symbol="inference.Nothing")])))
            services = [s.name for s in answers[0].list_services_response.service]
            self.assertEqual(services, [
                "inference.GRPCInferenceService", "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"])
            names = []
            for answer in answers[1:4]:
                file = descriptor_pb2.FileDescriptorProto.FromString(
                    answer.file_descriptor_response.file_descriptor_proto[0])
                names.append((file.name, file.package))
            self.assertEqual(names, [("inference.proto", "inference")] * 2 +
                             [("health.proto", "grpc.health.v1")])
            self.assertEqual(answers[4].error_response.error_code, 5)
            self.assertEqual(answers[3].original_request.file_by_filename, "health.proto")

    def test_a_client_made_of_reflection_alone(self):
        database = ProtoReflectionDescriptorDatabase(self.channel)
        self.assertIn("inference.GRPCInferenceService", database.get_services())
        pool = descriptor_pool.DescriptorPool(database)
        service = pool.FindServiceByName("inference.GRPCInferenceService")
        method = service.FindMethodByName("ServerMetadata")
        ask, answer = (message_factory.GetMessageClass(t)
                       for t in (method.input_type, method.output_type))
        call = self.channel.unary_unary(f"/{service.full_name}/{method.name}",
                                        request_serializer=ask.SerializeToString,
                                        response_deserializer=answer.FromString)
        self.assertEqual(call(ask()).name, "inferd")


class Lifecycle(unittest.TestCase):
    def test_a_watch_hears_of_the_end(self):
        with start(("copy",)) as server:
            channel = grpc.insecure_channel(door(server))
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            states = [next(watch).status]
            holder = triton.InferenceServerClient(door(server))
            server.signal(15)
            try:
                for message in watch:
                    states.append(message.status)
            except grpc.RpcError:
                pass
            channel.close()
            holder.close()
            self.assertEqual(states, [health_pb2.HealthCheckResponse.SERVING,
                                      health_pb2.HealthCheckResponse.NOT_SERVING])

    def test_the_end_under_load_fails_no_call_in_flight(self):
        """What was taken is answered; what was not can be tried elsewhere."""
        codes, done = [], []
        with start(("copy", "wide")) as server:
            address = door(server)

            def work(wide):
                x = np.random.rand(1, 1 << 18).astype(np.float32) if wide else SMALL
                with triton.InferenceServerClient(address) as client:
                    while True:
                        try:
                            result = client.infer("wide" if wide else "copy", [tensor("x", x)])
                        except triton.InferenceServerException as failure:
                            codes.append(code_of(failure))
                            return
                        np.testing.assert_array_equal(result.as_numpy("y"), x)
                        done.append(1)
            threads = [harness.Background(work, i % 2) for i in range(8)]
            time.sleep(1)
            server.signal(15)
            self.assertEqual(server.wait(), 0)
            for thread in threads:
                thread.finish()
        self.assertEqual(set(codes), {"UNAVAILABLE"})
        self.assertGreater(len(done), 8)

    def test_pauses_lose_nothing(self):
        """The least limits there are: reading stops after each message, in whatever state."""
        limits = {"connection_requests": 1, "frame_bytes": "2MiB",
                  "connection_inflight_bytes": "2MiB"}
        with start(("copy", "wide"), {"limits": limits}) as server:
            async def run():
                async with triton_aio.InferenceServerClient(door(server)) as client:
                    async def one(i):
                        wide = i % 25 == 0  # as many as may be on their way at once
                        x = np.full((1, 1 << 18 if wide else 4), i, np.float32)
                        result = await client.infer("wide" if wide else "copy",
                                                    [tensor("x", x, module=triton_aio)])
                        np.testing.assert_array_equal(result.as_numpy("y"), x)

                    async def feed():
                        for i in range(200):
                            yield {"model_name": "copy", "request_id": str(i),
                                   "inputs": [tensor("x", SMALL + i, module=triton_aio)]}

                    async def stream():
                        n = 0
                        async for result, error in client.stream_infer(feed()):
                            self.assertIsNone(error)
                            np.testing.assert_array_equal(result.as_numpy("y"), SMALL + n)
                            n += 1
                        self.assertEqual(n, 200)
                    await asyncio.gather(stream(), *(one(i) for i in range(200)))
            asyncio.run(run())

    def test_models_are_loaded_and_unloaded_on_request(self):
        repository = harness.folder() / "repository"
        for name in ("copy", "pair"):
            (repository / name / "1").mkdir(parents=True)
            shutil.copy(harness.plan(name), repository / name / "1" / "model.plan")
        (repository / "pair" / "config.pbtxt").write_text(
            "max_batch_size: 8 dynamic_batching { preferred_batch_size: [2, 4] "
            "max_queue_delay_microseconds: 500 priority_levels: 3 default_priority_level: 2 }")
        anybody = {"name": "anonymous", "models": ["*"],
                   "rights": ["infer", "describe", "status", "admin"]}
        config = {"repository": str(repository), "repository_mode": "explicit",
                  "repository_load": ["pair"], "identities": [anybody]}
        with harness.Server((), config, arguments=["--grpc", "127.0.0.1:0"]) as server:
            with triton.InferenceServerClient(door(server)) as client:
                batching = client.get_model_config("pair").config.dynamic_batching
                self.assertEqual((list(batching.preferred_batch_size), batching.priority_levels,
                                  batching.max_queue_delay_microseconds,
                                  batching.default_priority_level), ([2, 4], 3, 500, 2))
                self.assertFalse(client.is_model_ready("copy"))
                client.load_model("copy")
                self.assertTrue(client.is_model_ready("copy"))
                client.infer("copy", [tensor("x", SMALL)])
                client.load_model("pair", config='{"max_batch_size": 4, "dynamic_batching": '
                                  '{"max_queue_delay_microseconds": "900"}}')
                told = client.get_model_config("pair").config
                self.assertEqual((told.max_batch_size,
                                  told.dynamic_batching.max_queue_delay_microseconds), (4, 900))
                client.load_model("pair", config='{"max_batch_size": 4}', files={
                    "file:2/model.onnx": harness.onnx("copy").read_bytes(),
                    "file:2/model.onnx.data": bytes(3 << 20)})
                result = client.infer("pair", [tensor("x", SMALL)])
                np.testing.assert_array_equal(result.as_numpy("y"), SMALL)
                client.load_model("pair", config='{"max_batch_size": 4}')
                for more in ({"config": "{"}, {"config": '{"max_batch_size": []}', "files": {
                        "file:1/model.onnx": b"onnx"}}):
                    with self.assertRaises(triton.InferenceServerException):
                        client.load_model("pair", **more)
                self.assertEqual(client.get_model_config("pair").config.max_batch_size, 4)
                with self.assertRaises(triton.InferenceServerException) as caught:
                    client.load_model("nothing")
                self.assertIn("nothing", caught.exception.message())
                client.unload_model("copy")
                harness.until(lambda: not client.is_model_ready("copy"))
                states = {m.name: m.state for m in client.get_model_repository_index().models}
                self.assertEqual(states, {"copy": "UNAVAILABLE", "pair": "READY"})
                after = client.update_log_settings({"log_verbose_level": 1}).settings
                self.assertEqual(after["log_verbose_level"].uint32_param, 1)
                after = client.update_log_settings({"log_info": False}).settings
                self.assertFalse(after["log_info"].bool_param)
                self.assertTrue(after["log_warning"].bool_param)
            with grpc.insecure_channel(door(server)) as channel:
                load = channel.unary_unary(
                    "/inference.GRPCInferenceService/RepositoryModelLoad")
                load(b"\x0a\x04copy")  # the layout in which field 1 is the model
            with triton.InferenceServerClient(door(server)) as client:
                self.assertTrue(client.is_model_ready("copy"))

    def test_a_token_is_asked_for_and_taken(self):
        made = harness.subprocess.run([harness.INFERCTL, "token", "team", "--rights",
                                       "infer,describe", "--output", harness.folder() / "token"],
                                      capture_output=True, text=True, check=True)
        (harness.folder() / "tokens").write_text(made.stdout)
        (harness.folder() / "tokens").chmod(0o600)
        token = (harness.folder() / "token").read_text().strip()
        with start(("copy", "wide"), {"tokens": str(harness.folder() / "tokens")}) as server:
            with triton.InferenceServerClient(door(server)) as client:
                self.assertTrue(client.is_server_live())
                with self.assertRaises(triton.InferenceServerException) as caught:
                    client.infer("copy", [tensor("x", SMALL)])
                self.assertEqual(code_of(caught.exception), "UNAUTHENTICATED")
                bearer = {"authorization": f"Bearer {token}"}
                client.infer("copy", [tensor("x", SMALL)], headers=bearer)
            with triton.InferenceServerClient(door(server)) as client:
                x = np.random.rand(2, 1 << 18).astype(np.float32)
                result = client.infer("wide", [tensor("x", x)], headers=bearer)
                np.testing.assert_array_equal(result.as_numpy("y"), x)
            with triton.InferenceServerClient(door(server)) as client:
                with self.assertRaises(triton.InferenceServerException) as caught:
                    client.infer("wide", [tensor("x", x)])
                # by its length if the connection is new to the server
                self.assertIn(code_of(caught.exception), ("RESOURCE_EXHAUSTED", "UNAUTHENTICATED"))


if __name__ == "__main__":
    harness.main()
