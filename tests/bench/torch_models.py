# SPDX-License-Identifier: Apache-2.0
"""Models as their users have them: torchvision, transformers and torch.nn, with random weights.

MODELS maps a name to a function: make(name, small) gives a Model, a module that takes its inputs by
position, with functions that draw them. Nothing is downloaded. Small ones have few and narrow
layers; the others have the published sizes. Normalisation has live statistics, and no bias, scale
or statistic is left at the value that would let an error in it go unseen."""
import torch
import torchvision.models as vision
from torch import nn

MODELS = {}


def model(function):
    MODELS[function.__name__] = function
    return function


class Model(nn.Module):
    """call(net, feeds) gives the outputs; inputs: name -> function that draws it for a batch."""

    def __init__(self, net, inputs, outputs, call):
        super().__init__()
        self.net, self.inputs, self.outputs, self.call = net, inputs, outputs, call

    def forward(self, *values):
        return self.call(self.net, dict(zip(self.inputs, values)))

    def draw(self, batch, seed=1):
        """The inputs in their order, as float32 or int64 on the CPU."""
        random = torch.Generator().manual_seed(seed)
        return [draw(batch, random) for draw in self.inputs.values()]


def make(name, small=False):
    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # its fused op has no export
    made = MODELS[name](small).eval()
    made.note = MODELS[name].__doc__
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1 or parameter.unique().numel() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        measure_statistics(made)
    return made


def measure_statistics(made):
    norms = [m for m in made.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.train()
        norm.momentum = None  # the running values become the mean of all that was seen
    if norms:
        made(*made.draw(4, seed=2))
        made.eval()


# --- inputs ---

def floats(*shape, scale=1.0):
    return lambda batch, random: torch.randn(batch, *shape, generator=random) * scale


def image(size, channels=3):
    """Large structures and some noise: noise alone would average out before the classifier."""
    def draw(batch, random):
        coarse = torch.randn(batch, channels, 5, 5, generator=random)
        noise = torch.randn(batch, channels, size, size, generator=random)
        return nn.functional.interpolate(coarse, (size, size), mode="nearest") + 0.3 * noise
    return draw


def tokens(length, words):
    return lambda batch, random: torch.randint(3, words, (batch, length), generator=random)


def mask(length, left=False):
    """Ones where there are tokens: all in the first row, at least half in the others."""
    def draw(batch, random):
        used = torch.randint(length // 2, length + 1, (batch, 1), generator=random)
        used[0] = length
        ones = torch.arange(length)[None] < used
        return (ones.flip(1) if left else ones).to(torch.int64)
    return draw


# --- transformers ---

def only(net, feeds):
    """What a plain module gives for its only input."""
    return net(*feeds.values())


def field(*names):
    """Those fields of what a model of transformers gives."""
    def call(net, feeds):
        out = net(**feeds)
        return tuple(getattr(out, name) for name in names)
    return call


def text(length, words):
    return {"input_ids": tokens(length, words), "attention_mask": mask(length)}


def build(kind, config, attention="sdpa"):
    import transformers
    config = getattr(transformers, config.pop("config"))(**config)
    return getattr(transformers, kind)._from_config(config, attn_implementation=attention)


def encoder(kind, small, words, attention="sdpa", **more):
    width, length = (64, 24) if small else (768, 128)
    config = {"config": f"{kind}Config", "vocab_size": 99 if small else words,
              "hidden_size": width, "num_hidden_layers": 2 if small else 12,
              "num_attention_heads": 4 if small else 12, "intermediate_size": 4 * width,
              "initializer_range": 1.2 / width**0.5, **more}
    net = build(f"{kind}Model", config, attention)
    inputs = text(length, config["vocab_size"])
    return Model(net, inputs, ["last_hidden_state", "pooler_output"],
                 field("last_hidden_state", "pooler_output"))


@model
def bert(small, attention="sdpa"):
    """BERT-base, SDPA: padding mask, GELU by erf, pooler"""
    return encoder("Bert", small, 30522, attention)


@model
def bert_eager(small):
    """BERT-base, eager attention: MatMul, scale, additive mask, Softmax, MatMul"""
    return bert(small, "eager")


@model
def roberta(small):
    """RoBERTa-base, SDPA: positions by a cumulative sum over the ids"""
    return encoder("Roberta", small, 50265, max_position_embeddings=514, type_vocab_size=1)


@model
def distilbert(small, attention="sdpa"):
    """DistilBERT, SDPA"""
    width, length = (64, 24) if small else (768, 128)
    config = {"config": "DistilBertConfig", "vocab_size": 99 if small else 30522, "dim": width,
              "n_layers": 2 if small else 6, "n_heads": 4 if small else 12,
              "hidden_dim": 4 * width, "initializer_range": 1.2 / width**0.5}
    return Model(build("DistilBertModel", config, attention), text(length, config["vocab_size"]),
                 ["last_hidden_state"], field("last_hidden_state"))


@model
def distilbert_eager(small):
    """DistilBERT, eager attention"""
    return distilbert(small, "eager")


def prefill(net, small):
    def call(net, feeds):
        return net(**feeds, use_cache=False).logits
    return Model(net, text(24 if small else 128, net.config.vocab_size), ["logits"], call)


def decode(net, small):
    """One new token after earlier ones whose keys and values are inputs [N, heads, S, width]."""
    from transformers import DynamicCache
    config, length = net.config, 16 if small else 127
    layers, width = config.num_hidden_layers, config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    names = [f"{i}.{part}" for i in range(layers) for part in ("key", "value")]

    def call(net, feeds):
        cache = DynamicCache()
        for i in range(layers):
            cache.update(feeds[f"past.{i}.key"], feeds[f"past.{i}.value"], i)
        logits = net(input_ids=feeds["input_ids"], attention_mask=feeds["attention_mask"],
                     past_key_values=cache, use_cache=True).logits
        return logits, *(t for layer in cache.layers for t in (layer.keys, layer.values))

    inputs = {"input_ids": tokens(1, config.vocab_size),
              "attention_mask": mask(length + 1, left=True),
              **{f"past.{name}": floats(heads, length, width) for name in names}}
    return Model(net, inputs, ["logits"] + [f"present.{name}" for name in names], call)


def decoder(name, family, net, parts, cache):
    """Adds a decoder four times: whole prompt and one token, SDPA and eager attention each."""
    def add(suffix, form, attention, note):
        def function(small):
            return form(net(small, attention), small)
        function.__name__, function.__doc__ = name + suffix, f"{family}, {note}"
        model(function)
    add("", prefill, "sdpa", f"whole prompt, SDPA: {parts}")
    add("_eager", prefill, "eager", "whole prompt, eager attention")
    add("_step", decode, "sdpa", f"one token, SDPA: {cache}")
    add("_step_eager", decode, "eager", "one token, eager attention")


def gpt2_net(small, attention):
    width = 64 if small else 768
    return build("GPT2LMHeadModel", {
        "config": "GPT2Config", "vocab_size": 99 if small else 50257, "n_embd": width,
        "n_layer": 2 if small else 12, "n_head": 4 if small else 12,
        "initializer_range": 1.2 / width**0.5, "bos_token_id": 1, "eos_token_id": 2}, attention)


def llama_net(small, attention):
    width = 64 if small else 768
    return build("LlamaForCausalLM", {
        "config": "LlamaConfig", "vocab_size": 99 if small else 32000, "hidden_size": width,
        "num_hidden_layers": 2 if small else 12, "num_attention_heads": 4 if small else 12,
        "num_key_value_heads": 2 if small else 4, "intermediate_size": width * 8 // 3,
        "initializer_range": 1.2 / width**0.5}, attention)


decoder("gpt2", "GPT-2", gpt2_net,
        "causal and padding mask together, GELU by tanh, one product QKV",
        "keys and values of earlier tokens are inputs and outputs")
decoder("llama", "Llama", llama_net, "rotary positions, grouped queries, RMS norm, SwiGLU",
        "a cache of the grouped keys and values")


@model
def t5_encoder(small):
    """T5-small's encoder: relative position bias added to the scores, RMS norm, no scale, ReLU"""
    config = {"config": "T5Config", "vocab_size": 99 if small else 32128,
              "d_model": 64 if small else 512, "d_kv": 16 if small else 64,
              "d_ff": 128 if small else 2048, "num_layers": 2 if small else 6,
              "num_heads": 4 if small else 8}
    return Model(build("T5EncoderModel", config), text(24 if small else 128, config["vocab_size"]),
                 ["last_hidden_state"], field("last_hidden_state"))


@model
def clip_text(small):
    """CLIP's text side (ViT-B/32): causal and padding mask, QuickGELU, the end token is gathered"""
    config = {"config": "CLIPTextConfig", "vocab_size": 99 if small else 49408,
              "hidden_size": 64 if small else 512, "intermediate_size": 128 if small else 2048,
              "num_hidden_layers": 2 if small else 12, "num_attention_heads": 4 if small else 8,
              "max_position_embeddings": 24 if small else 77, "bos_token_id": 1,
              "eos_token_id": 50}
    return Model(build("CLIPTextModelWithProjection", config),
                 text(config["max_position_embeddings"], config["vocab_size"]),
                 ["text_embeds", "last_hidden_state"], field("text_embeds", "last_hidden_state"))


@model
def clip_vision(small):
    """CLIP's image side (ViT-B/32): class token, QuickGELU, no mask"""
    size = 64 if small else 224
    config = {"config": "CLIPVisionConfig", "hidden_size": 64 if small else 768,
              "intermediate_size": 128 if small else 3072, "num_hidden_layers": 2 if small else 12,
              "num_attention_heads": 4 if small else 12, "image_size": size,
              "patch_size": 16 if small else 32}
    return Model(build("CLIPVisionModelWithProjection", config), {"pixel_values": image(size)},
                 ["image_embeds"], field("image_embeds"))


@model
def whisper_encoder(small):
    """Whisper-base's encoder: two 1-D convolutions with GELU, keys without bias, 1500 positions"""
    width, length = (64, 100) if small else (512, 1500)
    config = {"config": "WhisperConfig", "d_model": width, "max_source_positions": length,
              "encoder_layers": 2 if small else 6, "encoder_attention_heads": 4 if small else 8,
              "encoder_ffn_dim": 4 * width, "decoder_layers": 1, "decoder_attention_heads": 4,
              "vocab_size": 99 if small else 51865, "pad_token_id": 1, "bos_token_id": 1,
              "eos_token_id": 1, "decoder_start_token_id": 1}
    return Model(build("WhisperModel", config).encoder,
                 {"input_features": floats(80, 2 * length)}, ["last_hidden_state"],
                 field("last_hidden_state"))


@model
def segformer(small):
    """SegFormer-B0: attention over fewer keys than queries, depthwise MLP, Resize, BN head"""
    config = {"config": "SegformerConfig"}
    if small:
        config.update(hidden_sizes=[16, 32], depths=[1, 1], num_attention_heads=[1, 2],
                      num_encoder_blocks=2, sr_ratios=[4, 2], patch_sizes=[7, 3], strides=[4, 2],
                      mlp_ratios=[2, 2], decoder_hidden_size=32)
    return Model(build("SegformerForSemanticSegmentation", config, "eager"),
                 {"pixel_values": image(64 if small else 512)}, ["logits"], field("logits"))


@model
def torch_encoder(small):
    """torch.nn.TransformerEncoder: MultiheadAttention with packed projections, a padding mask"""
    width, length = (64, 24) if small else (512, 128)
    layer = nn.TransformerEncoderLayer(width, 4 if small else 8, 4 * width, batch_first=True)
    net = nn.TransformerEncoder(layer, 2 if small else 6, enable_nested_tensor=False)

    def call(net, feeds):
        return net(feeds["x"], src_key_padding_mask=feeds["attention_mask"] == 0)
    return Model(net, {"x": floats(length, width), "attention_mask": mask(length)}, ["y"], call)


@model
def torch_encoder_gelu(small):
    """torch.nn.TransformerEncoder, norm first, GELU, no mask"""
    width, length = (64, 24) if small else (512, 128)
    layer = nn.TransformerEncoderLayer(width, 4 if small else 8, 4 * width, batch_first=True,
                                       activation="gelu", norm_first=True)
    net = nn.TransformerEncoder(layer, 2 if small else 6, enable_nested_tensor=False)
    return Model(net, {"x": floats(length, width)}, ["y"], only)


# --- images ---

def picture(net, size, call=only):
    return Model(net, {"image": image(size)}, ["y"], call)


@model
def vit_b_16(small):
    """ViT-B/16 of torchvision: MultiheadAttention with packed projections, norm first"""
    if not small:
        return picture(vision.vit_b_16(weights=None), 224)
    return picture(vision.VisionTransformer(32, 8, 2, 4, 64, 128, num_classes=10), 32)


@model
def swin_t(small):
    """Swin-T: shifted windows (Roll as Slice and Concat), position bias and region mask"""
    if not small:
        return picture(vision.swin_t(weights=None), 224)
    return picture(vision.SwinTransformer([4, 4], 32, [2, 2], [2, 4], [7, 7], num_classes=10), 56)


@model
def swin_v2_t(small):
    """Swin v2 T: cosine attention with a learned scale, norm after, bias by an MLP"""
    if not small:
        return picture(vision.swin_v2_t(weights=None), 256)
    from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformerBlockV2
    return picture(vision.SwinTransformer([4, 4], 32, [2, 2], [2, 4], [8, 8], num_classes=10,
                                          block=SwinTransformerBlockV2,
                                          downsample_layer=PatchMergingV2), 64)


@model
def convnext_tiny(small):
    """ConvNeXt-T: depthwise 7x7, layer norm over channels, GELU, a learned scale"""
    if not small:
        return picture(vision.convnext_tiny(weights=None), 224)
    from torchvision.models.convnext import CNBlockConfig
    return picture(vision.ConvNeXt([CNBlockConfig(32, 64, 1), CNBlockConfig(64, None, 1)],
                                   num_classes=10), 64)


@model
def maxvit_t(small):
    """MaxViT-T: windows and grids of attention with position bias, squeeze-excite, GELU"""
    if not small:
        return picture(vision.maxvit_t(weights=None), 224)
    return picture(vision.MaxVit((64, 64), 32, 4, [32, 64], [1, 1], 16, 0.0, num_classes=10), 64)


def classifier(name, note, size=224, small_size=64, net=None, **more):
    """A network of torchvision; net makes the small one where that is narrower."""
    def function(small):
        if small and net:
            return picture(net(), small_size)
        kind = getattr(vision, name)
        return picture(kind(weights=None, **more), small_size if small else size)
    function.__name__, function.__doc__ = name, note
    model(function)


def small_vgg():
    from torchvision.models.vgg import VGG, make_layers
    net = VGG(make_layers([16, "M", 32, "M", 32, 32, "M"]), init_weights=False)
    net.classifier = nn.Sequential(nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10))
    return net


def small_densenet():
    return vision.DenseNet(8, (2, 2, 2), 16, num_classes=10)


def small_resnet(**more):
    from torchvision.models.resnet import Bottleneck, ResNet
    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=10, **more)


classifier("mobilenet_v2", "MobileNet v2: depthwise, ReLU6 (Clip)", width_mult=1.0,
           net=lambda: vision.mobilenet_v2(weights=None, width_mult=0.35, num_classes=10))
classifier("mobilenet_v3_large", "MobileNet v3: squeeze-excite, HardSwish, HardSigmoid")
classifier("mnasnet1_0", "MNASNet: depthwise 3x3 and 5x5",
           net=lambda: vision.MNASNet(0.35, num_classes=10))
classifier("efficientnet_b0", "EfficientNet-B0: squeeze-excite, SiLU")
classifier("regnet_y_400mf", "RegNet: grouped convolutions, squeeze-excite")
classifier("shufflenet_v2_x1_0", "ShuffleNet v2: Split, channel shuffle (Reshape, Transpose)",
           net=lambda: vision.shufflenet_v2_x0_5(weights=None, num_classes=10))
classifier("densenet121", "DenseNet-121: Concat of everything before", net=small_densenet)
classifier("resnext50_32x4d", "ResNeXt-50: 32 groups",
           net=lambda: small_resnet(groups=32, width_per_group=4))
classifier("resnet50", "ResNet-50", net=small_resnet)
classifier("inception_v3", "Inception v3: wide and tall kernels, Concat, AveragePool", 299, 107,
           aux_logits=False, init_weights=False)
classifier("vgg16", "VGG-16: plain, a large classifier", small_size=56, net=small_vgg)


def segmentation(name, note, **more):
    def function(small):
        kind = getattr(vision.segmentation, name)
        net = kind(weights=None, weights_backbone=None, num_classes=5 if small else 21, **more)
        return picture(net, 65 if small else 520, lambda net, feeds: net(feeds["image"])["out"])
    function.__name__, function.__doc__ = name, note
    model(function)


segmentation("fcn_resnet50", "FCN-ResNet50: dilated, a bilinear Resize to the image's size")
segmentation("deeplabv3_mobilenet_v3_large", "DeepLab v3: dilated branches, pooled one, Resize")


class UNet(nn.Module):
    """The blocks of diffusion networks: GroupNorm, SiLU, attention in the middle, skips."""

    class Block(nn.Module):
        def __init__(self, inside, outside):
            super().__init__()
            self.norm = nn.GroupNorm(8, inside)
            self.conv = nn.Conv2d(inside, outside, 3, padding=1)
            self.skip = nn.Conv2d(inside, outside, 1)

        def forward(self, x):
            return self.conv(nn.functional.silu(self.norm(x))) + self.skip(x)

    def __init__(self, width, depth):
        super().__init__()
        widths = [width * 2**i for i in range(depth)]
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(self.Block(w, 2 * w) for w in widths)
        self.attention = nn.MultiheadAttention(2 * widths[-1], 4, batch_first=True)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths))
        self.join = nn.ModuleList(self.Block(3 * w, w) for w in reversed(widths))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        x, skips = self.stem(x), []
        for block in self.down:
            skips.append(block(x))
            x = nn.functional.max_pool2d(skips[-1], 2)
        rows = x.flatten(2).transpose(1, 2)
        rows = rows + self.attention(rows, rows, rows, need_weights=False)[0]
        x = rows.transpose(1, 2).reshape(x.shape)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)


@model
def unet(small):
    """U-Net: GroupNorm, SiLU, attention over pixels, ConvTranspose, Concat of skips"""
    return picture(UNet(16, 2) if small else UNet(64, 3), 32 if small else 128)


# --- sequences ---

@model
def lstm(small):
    """Two-layer bidirectional LSTM, batch first"""
    width, length = (32, 12) if small else (512, 64)
    net = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)
    return Model(net, {"x": floats(length, width)}, ["y"], lambda net, feeds: net(feeds["x"])[0])


class GruClassifier(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.gru = nn.GRU(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, ids):
        return self.head(self.gru(self.embedding(ids))[0][:, -1])


@model
def gru(small):
    """Embedding, two-layer GRU, the last step, a classifier"""
    words, width, length = (99, 32, 12) if small else (20000, 256, 64)
    return Model(GruClassifier(words, width), {"input_ids": tokens(length, words)}, ["y"], only)
