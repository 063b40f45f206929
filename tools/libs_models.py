"""Models of libraries that nobody here wrote, small, with random weights: what ``make libs`` runs.

Each entry, ``library/model``, makes a model and its arguments, a tuple by position or a dict by name. A library is
imported when its first model is made.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

Made = tuple[torch.nn.Module, Any]
Build = Callable[[], Made]

LIBRARIES = {
    "timm": "timm", "torchvision": "torchvision", "torch_geometric": "torch_geometric", "diffusers": "diffusers",
    "vit-pytorch": "vit_pytorch", "torchaudio": "torchaudio", "peft": "peft", "x-transformers": "x_transformers",
    "ultralytics": "ultralytics", "litgpt": "litgpt", "torchtune": "torchtune", "monai": "monai",
    "gpytorch": "gpytorch", "segmentation-models-pytorch": "segmentation_models_pytorch", "speechbrain": "speechbrain",
    "kornia": "kornia", "e3nn": "e3nn", "open_clip_torch": "open_clip", "openai-whisper": "whisper",
    "segment-anything": "segment_anything", "mambapy": "mambapy", "torchdiffeq": "torchdiffeq",
}  # fmt: skip
"""The libraries as pip knows them, and as Python imports them."""


def entries(library: str) -> dict[str, Build]:
    """The models of a library, by name."""
    return dict(ENTRIES[library]())


def _name(path: str) -> Any:
    """An object of a library by its full name."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _made(path: str, /, *args: Any, inputs: Callable[[], Any], **kwargs: Any) -> Build:
    """Call the class or function of that name; ``inputs`` makes the arguments."""
    return lambda: (_name(path)(*args, **kwargs), inputs())


def _images(size: int = 64, *, count: int = 2, channels: int = 3) -> Callable[[], Any]:
    return lambda: (torch.rand(count, channels, size, size),)


def _floats(*shape: int) -> Callable[[], Any]:
    return lambda: (torch.randn(*shape),)


def _ids(vocabulary: int = 64, *, length: int = 12, count: int = 2) -> torch.Tensor:
    return torch.randint(1, vocabulary, (count, length))


def _tokens(vocabulary: int = 64, *, length: int = 12) -> Callable[[], Any]:
    return lambda: (_ids(vocabulary, length=length),)


# Images -------------------------------------------------------------------------------------------

TIMM = """
byoanet halonet_h1, byobnet mobileone_s1, coat coat_tiny, convit convit_tiny, convnext convnext_atto,
cpubone cpubone_nano, convmixer convmixer_768_32, crossvit crossvit_tiny_240, csatv2 csatv2,
cspnet cs3darknet_focus_s, cspnext cspnext_tiny,
davit davit_tiny, deit deit_tiny_patch16_224, densenet densenet121, dla dla34, dpn dpn48b, edgenext edgenext_xx_small,
efficientformer efficientformer_l1, efficientformer_v2 efficientformerv2_s0, efficientnet mnasnet_small,
efficientvim efficientvim_m1, efficientvit_mit efficientvit_b0, efficientvit_msra efficientvit_m0,
eva eva02_tiny_patch14_224, fasternet fasternet_t0, fastvit fastvit_t8, focalnet focalnet_tiny_srf,
gcvit gcvit_xxtiny, ghostnet ghostnet_050, hardcorenas hardcorenas_b, hgnet hgnetv2_b0, hiera hiera_tiny_224,
hrnet hrnet_w18_small, iformer iformer_t, inception_next inception_next_atto, inception_v3 inception_v3,
lcnetv2 lcnetv2_small, levit levit_128s, lowformer lowformer_b0, mambaout test_mambaout,
maxxvit maxvit_rmlp_pico_rw_256, metaformer poolformer_s12, mlp_mixer gmlp_ti16_224, mobilenetv3 mobilenetv3_small_050,
mobilevit mobilevit_xxs, mvitv2 mvitv2_tiny, nest nest_tiny, nextvit nextvit_small, nfnet test_nfnet, pit pit_ti_224,
pvt_v2 pvt_v2_b0, rdnet rdnet_tiny, regnet regnetx_002, repghost repghostnet_050, repvit repvit_m1,
res2net res2next50, resnest resnest14d, resnet test_resnet, resnetv2 resnetv2_18, rexnet rexnet_100,
selecsls selecsls42, senet legacy_seresnet18, sequencer sequencer2d_s, shvit shvit_s1, sknet skresnet18,
starnet starnet_s050, swiftformer swiftformer_xs, swin_transformer swin_tiny_patch4_window7_224,
swin_transformer_v2 swinv2_tiny_window8_256, swin_transformer_v2_cr swinv2_cr_tiny_224, tiny_vit tiny_vit_5m_224,
tnt tnt_s_legacy_patch16_224, tresnet tresnet_m, twins twins_svt_small, visformer visformer_tiny,
vision_transformer vit_tiny_patch16_224, vision_transformer_hybrid vit_tiny_r_s16_p8_224,
vision_transformer_relpos test_vit_relpos, vitamin vitamin_small_224, vovnet ese_vovnet19b_slim_dw,
xception legacy_xception, xception_aligned xception41p, xcit xcit_tiny_12_p8_224
"""
TIMM_SHRUNK: dict[str, tuple[str, dict[str, Any]]] = {
    "beit": ("beit_base_patch16_224", {"depth": 3}),
    "cait": ("cait_xxs24_224", {"depth": 4}),
    "deepseek_vit": ("deepseek_vit_412m", {"depth": 2, "img_size": 224}),
    "gemma4_vit": ("gemma4_vit_167m", {"depth": 2, "img_size": 192}),
    "hieradet_sam2": ("sam2_hiera_tiny", {}),
    "inception_resnet_v2": ("inception_resnet_v2", {}),
    "inception_v4": ("inception_v4", {}),
    "mobilenetv5": ("mobilenetv5_base", {}),
    "naflexvit": ("naflexvit_base_patch16_gap", {"depth": 3}),
    "qwen3_vit": ("qwen3_vit_88m", {"depth": 3, "img_size": 224}),
    "samvit": ("samvit_base_patch16_224", {"depth": 3}),
    "vgg": ("vgg11", {}),
    "volo": ("volo_d1_224", {}),
}
TIMM_SIZES = {"hieradet_sam2": 224, "deepseek_vit": 224, "gemma4_vit": 192, "qwen3_vit": 224, "csatv2": 256}


def _timm() -> Iterator[tuple[str, Build]]:
    listed = (pair.split() for pair in TIMM.replace("\n", " ").strip().split(","))
    chosen = {family: (model, {}) for family, model in listed} | TIMM_SHRUNK
    for family, (model, options) in sorted(chosen.items()):
        yield f"{family}: {model}", _timm_model(model, options, TIMM_SIZES.get(family))


def _timm_model(name: str, options: dict[str, Any], size: int | None) -> Build:
    def build() -> Made:
        import timm

        model = timm.create_model(name, num_classes=10, **options)
        return model, (torch.rand(2, *((3, size, size) if size else model.default_cfg["input_size"])),)

    return build


def _torchvision() -> Iterator[tuple[str, Build]]:
    plain = {
        "alexnet": 64, "convnext_tiny": 64, "densenet121": 64, "efficientnet_b0": 64, "efficientnet_v2_s": 64,
        "googlenet": 64, "inception_v3": 96, "maxvit_t": 224, "mnasnet0_5": 64, "mobilenet_v2": 64,
        "mobilenet_v3_small": 64, "regnet_x_400mf": 64, "resnet18": 64, "resnext50_32x4d": 64,
        "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64, "swin_t": 64, "swin_v2_t": 64, "vgg11": 64,
    }  # fmt: skip
    for name, size in plain.items():
        options: dict[str, Any] = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        yield name, _made(f"torchvision.models.{name}", num_classes=10, inputs=_images(size), **options)
    vit = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 32}
    yield "VisionTransformer", _made("torchvision.models.VisionTransformer", **vit, inputs=_images(32))
    bare = {"weights": None, "weights_backbone": None}
    for name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
        yield name, _made(f"torchvision.models.segmentation.{name}", **bare, num_classes=5, inputs=_images(64))
    for name in ("r3d_18", "mc3_18", "r2plus1d_18"):
        yield name, _made(f"torchvision.models.video.{name}", num_classes=5, inputs=_floats(2, 3, 4, 32, 32))
    pair = lambda: (torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128))  # noqa: E731
    yield "raft_small", _made("torchvision.models.optical_flow.raft_small", inputs=pair)
    two = lambda: ([torch.rand(3, 64, 96), torch.rand(3, 80, 64)],)  # noqa: E731
    small = {"min_size": 64, "max_size": 96}
    few = {"rpn_pre_nms_top_n_test": 30, "rpn_post_nms_top_n_test": 10}
    for name in ("fasterrcnn_mobilenet_v3_large_320_fpn", "maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn"):
        yield name, _made(f"torchvision.models.detection.{name}", **bare, **small, **few, inputs=two)
    for name in ("retinanet_resnet50_fpn", "fcos_resnet50_fpn"):
        yield name, _made(f"torchvision.models.detection.{name}", **bare, **small, topk_candidates=20, inputs=two)
    yield "ssdlite320", _made(
        "torchvision.models.detection.ssdlite320_mobilenet_v3_large", **bare, num_classes=5, topk_candidates=20,
        inputs=two,
    )  # fmt: skip
    fpn = lambda: ({"a": torch.rand(2, 8, 16, 16), "b": torch.rand(2, 16, 8, 8)},)  # noqa: E731
    yield "FeaturePyramidNetwork", _made("torchvision.ops.FeaturePyramidNetwork", [8, 16], 4, inputs=fpn)


def _vit_pytorch() -> Iterator[tuple[str, Build]]:
    common = {"dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64, "num_classes": 10, "image_size": 32, "patch_size": 8}
    few = {key: common[key] for key in ("dim", "depth", "heads", "num_classes")}
    for path in (
        "vit.ViT", "simple_vit.SimpleViT", "deepvit.DeepViT", "vit_for_small_dataset.ViT", "parallel_vit.ViT",
        "simple_vit_with_register_tokens.SimpleViT", "simple_vit_with_qk_norm.SimpleViT", "normalized_vit.nViT",
        "simple_vit_with_patch_dropout.SimpleViT", "vit_with_patch_dropout.ViT", "learnable_memory_vit.ViT",
        "simple_vit_with_fft.SimpleViT", "simple_vit_with_value_residual.SimpleViT", "rvt.RvT",
    ):  # fmt: skip
        options = dict(common)
        if path == "parallel_vit.ViT":
            options["num_parallel_branches"] = 2
        if path == "normalized_vit.nViT":
            options["dim_head"] = 16
        if path == "simple_vit_with_fft.SimpleViT":
            options["freq_patch_size"] = 8
        yield path, _made(f"vit_pytorch.{path}", **options, inputs=_images(32))
    yield "cait.CaiT", _made("vit_pytorch.cait.CaiT", **common, cls_depth=1, inputs=_images(32))
    yield (
        "vit_with_patch_merger.ViT",
        _made("vit_pytorch.vit_with_patch_merger.ViT", **{**common, "depth": 4}, inputs=_images(32)),
    )
    yield (
        "simple_vit_1d",
        _made(
            "vit_pytorch.simple_vit_1d.SimpleViT", seq_len=32, patch_size=8, **few, mlp_dim=64, inputs=_floats(2, 3, 32)
        ),
    )
    yield "simple_vit_3d", _made(
        "vit_pytorch.simple_vit_3d.SimpleViT", image_size=32, image_patch_size=8, frames=4, frame_patch_size=2, **few,
        mlp_dim=64, inputs=_floats(2, 3, 4, 32, 32),
    )  # fmt: skip
    yield "vivit.ViViT", _made(
        "vit_pytorch.vivit.ViViT", image_size=32, image_patch_size=8, frames=4, frame_patch_size=2, spatial_depth=1,
        temporal_depth=1, dim=32, heads=2, mlp_dim=64, num_classes=10, inputs=_floats(2, 3, 4, 32, 32),
    )  # fmt: skip
    yield "mobile_vit.MobileViT", _made(
        "vit_pytorch.mobile_vit.MobileViT", image_size=(64, 64), dims=[16, 24, 32],
        channels=[8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 32], num_classes=10, inputs=_images(64),
    )  # fmt: skip
    yield "cvt.CvT", _made(
        "vit_pytorch.cvt.CvT", num_classes=10, s1_emb_dim=16, s2_emb_dim=24, s2_heads=2, s2_depth=1, s3_emb_dim=32,
        s3_heads=2, s3_depth=1, inputs=_images(64),
    )  # fmt: skip
    sizes = {"s1_global_k": 2, "s2_global_k": 2, "s3_global_k": 2, "s4_global_k": 1, "s3_depth": 1, "s4_depth": 1}
    parts = {"s1_local_patch_size": 4, "s2_local_patch_size": 4, "s3_local_patch_size": 2, "s4_local_patch_size": 1}
    yield "twins_svt.TwinsSVT", _made(
        "vit_pytorch.twins_svt.TwinsSVT", num_classes=10, s1_emb_dim=16, s2_emb_dim=24, s3_emb_dim=32, s4_emb_dim=48,
        **sizes, **parts, inputs=_images(64),
    )  # fmt: skip
    yield "crossformer.CrossFormer", _made(
        "vit_pytorch.crossformer.CrossFormer", num_classes=10, dim=(32, 48, 64, 96), depth=(1, 1, 1, 1),
        global_window_size=(4, 2, 2, 1), local_window_size=4, inputs=_images(128),
    )  # fmt: skip
    yield "nest.NesT", _made(
        "vit_pytorch.nest.NesT", image_size=32, patch_size=4, dim=16, heads=2, num_hierarchies=2, block_repeats=(1, 1),
        num_classes=10, inputs=_images(32),
    )  # fmt: skip
    yield "pit.PiT", _made(
        "vit_pytorch.pit.PiT", image_size=64, patch_size=8, dim=32, num_classes=10, depth=(1, 1), heads=2, mlp_dim=64,
        inputs=_images(64),
    )  # fmt: skip
    yield "xcit.XCiT", _made(
        "vit_pytorch.xcit.XCiT", image_size=32, patch_size=8, dim=32, depth=2, cls_depth=1, heads=2, mlp_dim=64,
        num_classes=10, inputs=_images(32),
    )  # fmt: skip
    yield "max_vit.MaxViT", _made(
        "vit_pytorch.max_vit.MaxViT", num_classes=10, dim=16, dim_conv_stem=16, dim_head=8, depth=(1, 1), window_size=4,
        inputs=_images(32),
    )  # fmt: skip
    images = lambda: ([torch.rand(3, 32, 32), torch.rand(3, 16, 32), torch.rand(3, 24, 16)],)  # noqa: E731
    yield "na_vit.NaViT", _made("vit_pytorch.na_vit.NaViT", **common, inputs=images)


def _segmentation() -> Iterator[tuple[str, Build]]:
    bare = {"encoder_weights": None, "classes": 3}
    for name in ("Unet", "UnetPlusPlus", "MAnet", "Linknet", "FPN", "PSPNet", "DeepLabV3", "DeepLabV3Plus"):
        path = f"segmentation_models_pytorch.{name}"
        yield name, _made(path, encoder_name="resnet18", **bare, inputs=_images(64))
    for name, encoder in (("UPerNet", "resnet18"), ("Segformer", "mit_b0"), ("Unet", "timm-regnetx_002"),
                          ("Unet", "mobilenet_v2"), ("Unet", "efficientnet-b0"), ("Unet", "vgg11")):  # fmt: skip
        path = f"segmentation_models_pytorch.{name}"
        yield f"{name} on {encoder}", _made(path, encoder_name=encoder, **bare, inputs=_images(64))


def _ultralytics() -> Iterator[tuple[str, Build]]:
    models = {
        "yolov3-tiny": "Detection", "yolov5n": "Detection", "yolov6n": "Detection", "yolov8n": "Detection",
        "yolov8n-ghost": "Detection", "yolov9t": "Detection", "yolov10n": "Detection", "yolo11n": "Detection",
        "yolo12n": "Detection", "yolov8n-seg": "Segmentation", "yolov8n-pose": "Pose", "yolov8n-obb": "OBB",
        "yolov8n-cls": "Classification", "yolo11n-cls": "Classification", "yolo26n": "Detection",
    }  # fmt: skip
    for name, task in models.items():
        yield name, _made(f"ultralytics.nn.tasks.{task}Model", f"{name}.yaml", ch=3, verbose=False, inputs=_images(64))


def _kornia() -> Iterator[tuple[str, Build]]:
    image = _images(32)
    plain: dict[str, tuple[Any, ...]] = {
        "filters.Sobel": (), "filters.Laplacian": (3,), "filters.Canny": (), "filters.GaussianBlur2d": ((3, 3), (1.0,
        1.0)),
        "filters.MedianBlur": ((3, 3),), "filters.BilateralBlur": ((3, 3), 0.1, (1.5, 1.5)),
        "filters.UnsharpMask": ((3, 3), (1.5, 1.5)),
        "filters.SpatialGradient": (), "filters.BoxBlur": ((3, 3),), "color.RgbToHsv": (), "color.RgbToLab": (),
        "color.RgbToGrayscale": (), "color.RgbToYcbcr": (), "color.RgbToHls": (), "color.RgbToLuv": (),
        "enhance.Normalize": (torch.zeros(3), torch.ones(3)), "enhance.ZCAWhitening": (),
        "enhance.AdjustHue": (0.2,), "enhance.AdjustContrast": (0.5,),
        "enhance.Invert": (), "geometry.transform.PyrDown": (), "geometry.transform.ScalePyramid": (3, 1.6, 10),
        "geometry.transform.Rescale": (2.0,), "geometry.transform.Hflip": (), "geometry.transform.Rot180": (),
        "feature.CornerHarris": (0.04,), "feature.CornerGFTT": (), "feature.BlobHessian": (), "feature.BlobDoG": (),
    }  # fmt: skip
    gray = {"feature.BlobDoG"}
    for name, args in plain.items():
        if name == "enhance.ZCAWhitening":
            continue  # it must be fitted first
        inputs = _floats(2, 1, 3, 32, 32) if name in gray else image
        yield name, _made(f"kornia.{name}", *args, inputs=inputs)
    for name in ("HardNet", "SOSNet", "HyNet", "TFeat"):
        yield f"feature.{name}", _made(f"kornia.feature.{name}", pretrained=False, inputs=_images(32, channels=1))
    yield "feature.SIFTDescriptor", _made("kornia.feature.SIFTDescriptor", 32, inputs=_images(32, channels=1))
    yield (
        "feature.MKDDescriptor",
        _made("kornia.feature.MKDDescriptor", 32, whitening=None, inputs=_images(32, channels=1)),
    )
    yield "feature.KeyNet", _made("kornia.feature.KeyNet", pretrained=False, inputs=_images(32, channels=1))
    yield "feature.DISK", _made("kornia.feature.DISK", inputs=_images(32))
    yield "feature.LAFOrienter", _made(
        "kornia.feature.LAFOrienter", 19,
        inputs=lambda: (torch.eye(2, 3)[None, None].repeat(1, 3, 1, 1) * 8 + 4, torch.rand(1, 1, 32, 32)),
    )  # fmt: skip
    yield (
        "feature.ScaleSpaceDetector",
        _made("kornia.feature.ScaleSpaceDetector", 20, inputs=_images(64, count=1, channels=1)),
    )
    pair = lambda: {"data": {"image0": torch.rand(1, 1, 64, 64), "image1": torch.rand(1, 1, 64, 64)}}  # noqa: E731
    yield "feature.LoFTR", _made("kornia.feature.LoFTR", pretrained=None, inputs=pair)
    yield "models.DexiNed", _made("kornia.models.dexined.DexiNed", pretrained=False, inputs=_images(64, count=1))
    two = lambda: (torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32))  # noqa: E731
    yield "losses.SSIMLoss", _made("kornia.losses.SSIMLoss", 5, inputs=two)
    yield "losses.PSNRLoss", _made("kornia.losses.PSNRLoss", 1.0, inputs=two)
    yield "losses.TotalVariation", _made("kornia.losses.TotalVariation", inputs=image)
    for name, options in (
        ("RandomHorizontalFlip", {"p": 1.0}), ("RandomAffine", {"degrees": 30.0, "p": 1.0}), ("ColorJitter",
        {"brightness": 0.2}),
        ("RandomErasing", {"p": 1.0}), ("CenterCrop", {"size": 16}), ("RandomGaussianBlur", {"kernel_size": (3, 3),
        "sigma": (0.1, 2.0), "p": 1.0}),
    ):  # fmt: skip
        yield f"augmentation.{name}", _made(f"kornia.augmentation.{name}", **options, inputs=image)

    def sequence() -> Made:
        flip, rotate = _name("kornia.augmentation.RandomHorizontalFlip"), _name("kornia.augmentation.RandomRotation")
        return _name("kornia.augmentation.AugmentationSequential")(flip(p=1.0), rotate(30.0, p=1.0)), _images(32)()

    yield "augmentation.AugmentationSequential", sequence


def _segment_anything() -> Iterator[tuple[str, Build]]:
    def sam() -> Made:
        encoder = _name("segment_anything.modeling.ImageEncoderViT")(
            img_size=64, patch_size=8, embed_dim=32, depth=2, num_heads=2, out_chans=16, use_rel_pos=True,
            window_size=4, global_attn_indexes=(1,),
        )  # fmt: skip
        prompts = _name("segment_anything.modeling.PromptEncoder")(
            embed_dim=16, image_embedding_size=(8, 8), input_image_size=(64, 64), mask_in_chans=8
        )
        transformer = _name("segment_anything.modeling.TwoWayTransformer")(
            depth=2, embedding_dim=16, mlp_dim=32, num_heads=2
        )
        decoder = _name("segment_anything.modeling.MaskDecoder")(
            transformer_dim=16, transformer=transformer, iou_head_hidden_dim=16
        )
        model = _name("segment_anything.modeling.Sam")(encoder, prompts, decoder)
        points = {"point_coords": torch.rand(1, 2, 2) * 64, "point_labels": torch.ones(1, 2)}
        image = {"image": torch.rand(3, 64, 64), "original_size": (64, 64), **points}
        return model, {"batched_input": [image], "multimask_output": True}

    yield "Sam", sam
    yield "ImageEncoderViT", _made(
        "segment_anything.modeling.ImageEncoderViT", img_size=64, patch_size=8, embed_dim=32, depth=2, num_heads=2,
        out_chans=16, use_rel_pos=True, window_size=4, global_attn_indexes=(1,), inputs=_images(64),
    )  # fmt: skip
    yield "TwoWayTransformer", _made(
        "segment_anything.modeling.TwoWayTransformer", depth=2, embedding_dim=16, mlp_dim=32, num_heads=2,
        inputs=lambda: (torch.randn(2, 16, 4, 4), torch.randn(2, 16, 4, 4), torch.randn(2, 5, 16)),
    )  # fmt: skip


# Volumes, meshes, graphs, functions ---------------------------------------------------------------


def _monai() -> Iterator[tuple[str, Build]]:
    nets = "monai.networks.nets"
    flat = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
    one = _images(32, channels=1)
    steps = {"channels": (4, 8, 16), "strides": (2, 2)}
    yield "UNet", _made(f"{nets}.UNet", **flat, **steps, num_res_units=1, inputs=one)
    yield "UNet 3d", _made(f"{nets}.UNet", 3, 1, 2, (4, 8, 16), (2, 2), inputs=_floats(2, 1, 16, 16, 16))
    yield "AttentionUnet", _made(f"{nets}.AttentionUnet", **flat, **steps, inputs=one)
    yield "BasicUNet", _made(f"{nets}.BasicUNet", **flat, features=(4, 4, 8, 8, 16, 4), inputs=one)
    yield "BasicUNetPlusPlus", _made(f"{nets}.BasicUNetPlusPlus", **flat, features=(4, 4, 8, 8, 16, 4), inputs=one)
    yield "SegResNet", _made(f"{nets}.SegResNet", **flat, init_filters=8, inputs=one)
    yield "SegResNetDS", _made(f"{nets}.SegResNetDS", **flat, init_filters=8, inputs=one)
    yield "DynUNet", _made(
        f"{nets}.DynUNet", **flat, kernel_size=(3, 3, 3), strides=(1, 2, 2), upsample_kernel_size=(2, 2),
        filters=(4, 8, 16), inputs=one,
    )  # fmt: skip
    yield "UNETR", _made(
        f"{nets}.UNETR", 1, 2, (32, 32), feature_size=4, hidden_size=32, mlp_dim=64, num_heads=2, spatial_dims=2,
        inputs=one,
    )  # fmt: skip
    yield "SwinUNETR", _made(f"{nets}.SwinUNETR", 1, 2, feature_size=12, spatial_dims=2, inputs=_images(64, channels=1))
    yield "VNet", _made(f"{nets}.VNet", 2, 1, 2, inputs=one)
    yield "HighResNet", _made(f"{nets}.HighResNet", **flat, inputs=one)
    yield "DenseNet121", _made(f"{nets}.DenseNet121", **flat, inputs=one)
    yield (
        "EfficientNetBN",
        _made(
            f"{nets}.EfficientNetBN",
            "efficientnet-b0",
            pretrained=False,
            spatial_dims=2,
            num_classes=2,
            inputs=_images(32),
        ),
    )
    yield "resnet18", _made(f"{nets}.resnet18", spatial_dims=2, n_input_channels=1, num_classes=2, inputs=one)
    yield "SENet154", _made(f"{nets}.SENet", 2, 1, "se_bottleneck", (1, 1, 1, 1), 4, 4, num_classes=2, inputs=one)
    yield "ViT", _made(
        f"{nets}.ViT", 1, (32, 32), (8, 8), hidden_size=32, mlp_dim=64, num_layers=2, num_heads=2, spatial_dims=2,
        classification=True, inputs=one,
    )  # fmt: skip
    yield "ViTAutoEnc", _made(
        f"{nets}.ViTAutoEnc", 1, (32, 32), (4, 4), hidden_size=32, mlp_dim=64, num_layers=2, num_heads=2,
        spatial_dims=2, inputs=one,
    )  # fmt: skip
    yield "AutoEncoder", _made(f"{nets}.AutoEncoder", **flat, channels=(4, 8), strides=(2, 2), inputs=one)
    yield "VarAutoEncoder", _made(f"{nets}.VarAutoEncoder", 2, (1, 32, 32), 1, 4, (4, 8), (2, 2), inputs=one)
    yield "AutoencoderKL", _made(
        f"{nets}.AutoencoderKL", 2, num_res_blocks=(1, 1), channels=(8, 8), attention_levels=(False, True),
        latent_channels=4, norm_num_groups=4, inputs=one,
    )  # fmt: skip
    yield "VQVAE", _made(
        f"{nets}.VQVAE", 2, 1, 1, channels=(8, 8), num_res_layers=1, num_res_channels=(8, 8), num_embeddings=16,
        embedding_dim=8, downsample_parameters=((2, 4, 1, 1),) * 2,
        upsample_parameters=((2, 4, 1, 1, 0),) * 2, inputs=one,
    )  # fmt: skip
    yield "DiffusionModelUNet", _made(
        f"{nets}.DiffusionModelUNet", 2, 1, 1, num_res_blocks=(1, 1), channels=(8, 8), attention_levels=(False, True),
        norm_num_groups=4, num_head_channels=4, inputs=lambda: (torch.randn(2, 1, 16, 16), torch.tensor([1, 5])),
    )  # fmt: skip
    yield "Regressor", _made(f"{nets}.Regressor", (1, 32, 32), 2, (4, 8), (2, 2), inputs=one)
    yield "Classifier", _made(f"{nets}.Classifier", (1, 32, 32), 2, (4, 8), (2, 2), inputs=one)
    yield "FullyConnectedNet", _made(f"{nets}.FullyConnectedNet", 8, 2, [16, 8], inputs=_floats(2, 8))
    yield (
        "FlexibleUNet",
        _made(f"{nets}.FlexibleUNet", 3, 2, "efficientnet-b0", pretrained=False, spatial_dims=2, inputs=_images(64)),
    )
    yield "MultiScalePatchDiscriminator", _made(
        f"{nets}.MultiScalePatchDiscriminator", 2, 2, spatial_dims=2, channels=8, in_channels=1,
        inputs=_images(64, channels=1),
    )  # fmt: skip
    yield (
        "Restormer",
        _made(
            "monai.networks.nets.restormer.Restormer",
            2,
            1,
            1,
            dim=8,
            num_blocks=(1, 1),
            heads=(1, 2),
            num_refinement_blocks=1,
            inputs=one,
        ),
    )
    yield "RegUNet", _made(f"{nets}.RegUNet", 2, 1, 4, 2, out_channels=2, inputs=one)
    yield (
        "MILModel",
        _made(f"{nets}.MILModel", 2, mil_mode="att", pretrained=False, backbone=None, inputs=_floats(1, 3, 3, 32, 32)),
    )


def _graph(features: int = 8, *, nodes: int = 10, edges: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(nodes, features), torch.randint(0, nodes, (2, edges))


def _torch_geometric() -> Iterator[tuple[str, Build]]:
    nn = "torch_geometric.nn"
    for name in ("GCN", "GraphSAGE", "GIN", "GAT", "EdgeCNN"):
        yield name, _made(f"{nn}.{name}", 8, 16, 2, out_channels=4, inputs=_graph)
    convolutions: dict[str, dict[str, Any]] = {
        "GCNConv": {}, "SAGEConv": {}, "GATConv": {"heads": 2}, "GATv2Conv": {"heads": 2},
        "TransformerConv": {"heads": 2}, "TAGConv": {}, "SGConv": {}, "ChebConv": {"K": 2}, "GraphConv": {},
        "ARMAConv": {}, "LEConv": {}, "ClusterGCNConv": {}, "GENConv": {}, "MFConv": {}, "SSGConv": {"alpha": 0.1},
        "SuperGATConv": {}, "FeaStConv": {}, "ResGatedGraphConv": {}, "GeneralConv": {}, "EGConv": {"num_heads": 2},
        "MixHopConv": {}, "FiLMConv": {}, "HypergraphConv": {},
    }  # fmt: skip
    for name, options in convolutions.items():
        yield name, _made(f"{nn}.{name}", 8, 8, **options, inputs=_graph)
    yield "APPNP", _made(f"{nn}.APPNP", 3, 0.1, inputs=_graph)
    yield "GatedGraphConv", _made(f"{nn}.GatedGraphConv", 8, 2, inputs=_graph)
    yield "GraphUNet", _made(f"{nn}.GraphUNet", 8, 8, 4, depth=2, inputs=_graph)
    yield "DeepGraphInfomax summary: GAE", lambda: _encode(_name(f"{nn}.GAE"), _name(f"{nn}.GCNConv")(8, 4))
    yield "AttentiveFP", _made(
        f"{nn}.AttentiveFP", 8, 8, 4, 4, 2, 2,
        inputs=lambda: (*_graph(), torch.randn(30, 4), torch.tensor([0] * 5 + [1] * 5)),
    )  # fmt: skip
    yield (
        "DMoNPooling",
        _made(f"{nn}.DMoNPooling", 8, 3, inputs=lambda: (torch.randn(2, 6, 8), (torch.rand(2, 6, 6) > 0.5).float())),
    )
    yield "Set2Set", _made(f"{nn}.Set2Set", 8, 2, inputs=lambda: (torch.randn(6, 8), torch.tensor([0, 0, 0, 1, 1, 1])))
    yield (
        "PNAConv",
        _made(f"{nn}.PNAConv", 8, 8, ["mean", "max"], ["identity"], torch.tensor([1, 2, 3, 4]), inputs=_graph),
    )
    yield "RGCNConv", _made(f"{nn}.RGCNConv", 8, 8, 3, inputs=lambda: (*_graph(), torch.randint(0, 3, (30,))))
    yield (
        "HeteroDictLinear",
        _made(
            f"{nn}.HeteroDictLinear",
            {"a": 4, "b": 6},
            8,
            inputs=lambda: ({"a": torch.randn(3, 4), "b": torch.randn(2, 6)},),
        ),
    )
    yield "LightGCN", _made(f"{nn}.LightGCN", 10, 8, 2, inputs=lambda: (torch.randint(0, 10, (2, 20)),))
    yield "PMLP", _made(f"{nn}.PMLP", 8, 8, 4, 2, inputs=_graph)
    yield (
        "JumpingKnowledge",
        _made(f"{nn}.JumpingKnowledge", "lstm", 8, 2, inputs=lambda: ([torch.randn(5, 8), torch.randn(5, 8)],)),
    )


class Encodes(torch.nn.Module):
    """A model whose entry is ``encode``."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any) -> Any:
        model: Any = self.model
        return model.encode(*args)


def _encode(kind: Any, encoder: torch.nn.Module) -> Made:
    return Encodes(kind(encoder)), _graph()


class Kernel(torch.nn.Module):
    """A kernel of gpytorch, evaluated."""

    def __init__(self, kernel: torch.nn.Module) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.kernel(a, b).to_dense()  # type: ignore[no-any-return]


class Regression(torch.nn.Module):
    """An exact Gaussian process that predicts, or, in training, its marginal likelihood."""

    def __init__(self, predicts: bool) -> None:
        super().__init__()
        gpytorch: Any = importlib.import_module("gpytorch")

        class Exact(gpytorch.models.ExactGP):  # type: ignore[misc, name-defined]
            def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: torch.nn.Module) -> None:
                super().__init__(x, y, likelihood)
                self.mean_module = gpytorch.means.ConstantMean()
                self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

            def forward(self, x: torch.Tensor) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        x = torch.linspace(0, 1, 10)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.model = Exact(x, torch.sin(6 * x), self.likelihood)
        self.predicts = predicts

    def forward(self, x: torch.Tensor) -> Any:
        if self.predicts:
            found = self.likelihood(self.model(x))
            return found.mean, found.variance
        self.model.train()
        return self.model(self.model.train_inputs[0]).covariance_matrix


def _gpytorch() -> Iterator[tuple[str, Build]]:
    points = lambda: (torch.randn(6, 3), torch.randn(4, 3))  # noqa: E731
    kernels: dict[str, dict[str, Any]] = {
        "RBFKernel": {}, "MaternKernel": {"nu": 1.5}, "PeriodicKernel": {}, "LinearKernel": {}, "CosineKernel": {},
        "PolynomialKernel": {"power": 2}, "RQKernel": {}, "PiecewisePolynomialKernel": {},
        "SpectralMixtureKernel": {"num_mixtures": 2, "ard_num_dims": 3}, "ConstantKernel": {},
        "RBFKernelGrad": {}, "ArcKernel": {},
    }  # fmt: skip
    for name, options in kernels.items():
        if name == "ArcKernel":
            yield (
                name,
                lambda: (
                    Kernel(
                        _name("gpytorch.kernels.ArcKernel")(_name("gpytorch.kernels.MaternKernel")(), ard_num_dims=3)
                    ),
                    (torch.rand(6, 3), torch.rand(4, 3)),
                ),
            )
            continue
        yield name, _kernel(name, options, points)

    def made(make: Callable[[Any], Any]) -> Build:
        return lambda: (Kernel(make(importlib.import_module("gpytorch").kernels)), points())

    yield "ScaleKernel", made(lambda k: k.ScaleKernel(k.RBFKernel()))
    yield "a sum of kernels", made(lambda k: k.RBFKernel() + k.LinearKernel())
    yield "a product of kernels", made(lambda k: k.RBFKernel() * k.PeriodicKernel())
    yield "a scaled sum of kernels", made(lambda k: k.ScaleKernel(k.RBFKernel() + k.MaternKernel(nu=0.5)))
    yield "RBFKernel by dimension", made(lambda k: k.RBFKernel(ard_num_dims=3))
    for name, options in {"ConstantMean": {}, "ZeroMean": {}, "LinearMean": {"input_size": 3}}.items():
        yield name, _made(f"gpytorch.means.{name}", **options, inputs=_floats(6, 3))
    yield "ExactGP, prior", lambda: (Regression(predicts=False), (torch.rand(4),))
    yield "ExactGP, predicted", lambda: (Regression(predicts=True), (torch.rand(4),))


def _kernel(name: str, options: dict[str, Any], points: Callable[[], Any]) -> Build:
    return lambda: (Kernel(_name(f"gpytorch.kernels.{name}")(**options)), points())


def _e3nn() -> Iterator[tuple[str, Build]]:
    o3 = "e3nn.o3"
    yield "Linear", _made(f"{o3}.Linear", "4x0e+2x1o", "3x0e+2x1o", inputs=_floats(5, 10))
    yield "FullyConnectedTensorProduct", _made(
        f"{o3}.FullyConnectedTensorProduct", "2x0e+1x1o", "1x0e+1x1o", "2x0e+1x1o",
        inputs=lambda: (torch.randn(5, 5), torch.randn(5, 4)),
    )  # fmt: skip
    yield "TensorSquare", _made(f"{o3}.TensorSquare", "2x0e+1x1o", inputs=_floats(5, 5))
    yield "Norm", _made(f"{o3}.Norm", "2x0e+2x1o", inputs=_floats(5, 8))
    yield "SphericalHarmonics", _made(f"{o3}.SphericalHarmonics", "0e+1o+2e", normalize=True, inputs=_floats(5, 3))
    yield (
        "Gate",
        lambda: (
            _name("e3nn.nn.Gate")("4x0e", [torch.relu], "2x0e", [torch.sigmoid], "2x1o"),
            (torch.randn(5, 12),),
        ),
    )
    yield "BatchNorm", _made("e3nn.nn.BatchNorm", "2x0e+2x1o", inputs=_floats(5, 8))
    yield "FullyConnectedNet", lambda: (_name("e3nn.nn.FullyConnectedNet")([4, 8, 2], torch.relu), (torch.randn(5, 4),))
    yield "NormActivation", lambda: (_name("e3nn.nn.NormActivation")("2x0e+2x1o", torch.sigmoid), (torch.randn(5, 8),))
    yield "Activation", lambda: (_name("e3nn.nn.Activation")("4x0e", [torch.tanh]), (torch.randn(5, 4),))


class Rate(torch.nn.Module):
    """The right side of a differential equation."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.net(y**3)  # type: ignore[no-any-return]


class Solved(torch.nn.Module):
    """A differential equation, solved."""

    def __init__(self, method: str, **options: Any) -> None:
        super().__init__()
        self.rate, self.method, self.options = Rate(), method, options

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        solve: Any = _name("torchdiffeq.odeint")
        times = torch.linspace(0.0, 1.0, 4)
        return solve(self.rate, y, times, method=self.method, **self.options)  # type: ignore[no-any-return]


def _torchdiffeq() -> Iterator[tuple[str, Build]]:
    for method in ("euler", "midpoint", "rk4", "heun3", "explicit_adams", "implicit_adams"):
        yield method, _solved(method)
    for method in ("dopri5", "bosh3", "adaptive_heun", "dopri8", "fehlberg2"):
        yield method, _solved(method, rtol=1e-3, atol=1e-4)


def _solved(method: str, **options: Any) -> Build:
    return lambda: (Solved(method, **options), (torch.randn(3, 2),))


# Language, sound ----------------------------------------------------------------------------------


def _diffusers() -> Iterator[tuple[str, Build]]:
    latents = lambda: (torch.randn(2, 4, 16, 16), torch.tensor([1, 5]))  # noqa: E731
    conditioned = lambda: (*latents(), torch.randn(2, 3, 16))  # noqa: E731
    blocks = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1}
    yield "UNet2DModel", _made(
        "diffusers.UNet2DModel", sample_size=16, in_channels=4, out_channels=4, **blocks,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4, inputs=latents,
    )  # fmt: skip
    crossed = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "cross_attention_dim": 16}
    yield "UNet2DConditionModel", _made(
        "diffusers.UNet2DConditionModel", sample_size=16, **blocks, **crossed,
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), attention_head_dim=4, inputs=conditioned,
    )  # fmt: skip
    yield "ControlNetModel", _made(
        "diffusers.ControlNetModel", **blocks, **crossed, attention_head_dim=4,
        conditioning_embedding_out_channels=(4, 8),
        inputs=lambda: (*conditioned(), torch.rand(2, 3, 32, 32)),
    )  # fmt: skip
    yield "UNet3DConditionModel", _made(
        "diffusers.UNet3DConditionModel", sample_size=16, block_out_channels=(8, 16), norm_num_groups=4,
        layers_per_block=1, down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"), cross_attention_dim=16, attention_head_dim=4,
        inputs=lambda: (torch.randn(1, 4, 2, 16, 16), torch.tensor([1]), torch.randn(1, 3, 16)),
    )  # fmt: skip
    yield "AutoencoderKL", _made(
        "diffusers.AutoencoderKL", down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, **blocks, inputs=_images(32),
    )  # fmt: skip
    yield "VQModel", _made(
        "diffusers.VQModel", down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        **blocks, num_vq_embeddings=16, inputs=_images(32),
    )  # fmt: skip
    yield "AutoencoderTiny", _made(
        "diffusers.AutoencoderTiny", encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8),
        num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1), inputs=_images(32),
    )  # fmt: skip
    yield "AsymmetricAutoencoderKL", _made(
        "diffusers.AsymmetricAutoencoderKL", down_block_types=("DownEncoderBlock2D",),
        down_block_out_channels=(8,), up_block_types=("UpDecoderBlock2D",), up_block_out_channels=(8,),
        norm_num_groups=4, inputs=_images(16),
    )  # fmt: skip
    yield "Transformer2DModel", _made(
        "diffusers.Transformer2DModel", num_attention_heads=2, attention_head_dim=8, in_channels=16, num_layers=1,
        norm_num_groups=4, cross_attention_dim=16, inputs=lambda: (torch.randn(2, 16, 8, 8), torch.randn(2, 3, 16)),
    )  # fmt: skip
    yield "DiTTransformer2DModel", _made(
        "diffusers.DiTTransformer2DModel", num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2,
        sample_size=8, num_embeds_ada_norm=10,
        inputs=lambda: {
            "hidden_states": torch.randn(2, 4, 8, 8), "timestep": torch.tensor([1, 5]),
            "class_labels": torch.tensor([1, 2]),
        },
    )  # fmt: skip
    yield "PixArtTransformer2DModel", _made(
        "diffusers.PixArtTransformer2DModel", num_attention_heads=2, attention_head_dim=8, in_channels=4,
        num_layers=2, sample_size=8, cross_attention_dim=16, caption_channels=16, use_additional_conditions=False,
        inputs=lambda: {
            "hidden_states": torch.randn(2, 4, 8, 8), "encoder_hidden_states": torch.randn(2, 5, 16),
            "timestep": torch.tensor([1, 5]),
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        },
    )  # fmt: skip
    yield "SD3Transformer2DModel", _made(
        "diffusers.SD3Transformer2DModel", sample_size=16, patch_size=2, in_channels=4, num_layers=2,
        attention_head_dim=8, num_attention_heads=2, joint_attention_dim=16, caption_projection_dim=16,
        pooled_projection_dim=16, pos_embed_max_size=16,
        inputs=lambda: (torch.randn(2, 4, 16, 16), torch.randn(2, 5, 16), torch.randn(2, 16), torch.tensor([1, 5])),
    )  # fmt: skip
    yield "FluxTransformer2DModel", _made(
        "diffusers.FluxTransformer2DModel", patch_size=1, in_channels=4, num_layers=1, num_single_layers=1,
        attention_head_dim=16, num_attention_heads=2, joint_attention_dim=16, pooled_projection_dim=16,
        axes_dims_rope=(4, 4, 8),
        inputs=lambda: {
            "hidden_states": torch.randn(2, 16, 4), "encoder_hidden_states": torch.randn(2, 5, 16),
            "pooled_projections": torch.randn(2, 16), "timestep": torch.tensor([1.0, 0.5]),
            "img_ids": torch.zeros(16, 3), "txt_ids": torch.zeros(5, 3),
        },
    )  # fmt: skip
    yield "PriorTransformer", _made(
        "diffusers.PriorTransformer", num_attention_heads=2, attention_head_dim=8, num_layers=2, embedding_dim=16,
        num_embeddings=5, additional_embeddings=4,
        inputs=lambda: (torch.randn(2, 16), torch.tensor([1, 5]), torch.randn(2, 16), torch.randn(2, 5, 16)),
    )  # fmt: skip
    yield "AuraFlowTransformer2DModel", _made(
        "diffusers.AuraFlowTransformer2DModel", sample_size=16, in_channels=4, num_mmdit_layers=1,
        num_single_dit_layers=1, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=16,
        caption_projection_dim=16, out_channels=4, pos_embed_max_size=64,
        inputs=lambda: (torch.randn(2, 4, 16, 16), torch.randn(2, 5, 16), torch.tensor([1, 5])),
    )  # fmt: skip
    yield "WanTransformer3DModel", _made(
        "diffusers.WanTransformer3DModel", patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12,
        in_channels=4, out_channels=4, text_dim=16, freq_dim=16, ffn_dim=32, num_layers=2,
        inputs=lambda: {
            "hidden_states": torch.randn(2, 4, 2, 8, 8), "timestep": torch.tensor([1, 5]),
            "encoder_hidden_states": torch.randn(2, 5, 16),
        },
    )  # fmt: skip
    yield "SanaTransformer2DModel", _made(
        "diffusers.SanaTransformer2DModel", in_channels=4, out_channels=4, num_attention_heads=2,
        attention_head_dim=8, num_layers=2, num_cross_attention_heads=2, cross_attention_head_dim=8,
        cross_attention_dim=16, caption_channels=16, sample_size=8, patch_size=1,
        inputs=lambda: {
            "hidden_states": torch.randn(2, 4, 8, 8), "encoder_hidden_states": torch.randn(2, 5, 16),
            "timestep": torch.tensor([1, 5]),
        },
    )  # fmt: skip
    yield "StableAudioDiTModel", _made(
        "diffusers.StableAudioDiTModel", sample_size=16, in_channels=4, num_layers=2, attention_head_dim=8,
        num_attention_heads=2, num_key_value_attention_heads=1, out_channels=4, cross_attention_dim=16,
        time_proj_dim=16, global_states_input_dim=16, cross_attention_input_dim=16,
        inputs=lambda: {
            "hidden_states": torch.randn(2, 4, 16), "timestep": torch.tensor([1, 5]),
            "encoder_hidden_states": torch.randn(2, 5, 16), "global_hidden_states": torch.randn(2, 1, 16),
            "rotary_embedding": (torch.randn(17, 4), torch.randn(17, 4)),
        },
    )  # fmt: skip


def _peft() -> Iterator[tuple[str, Build]]:
    sys.modules["torchao"] = None  # type: ignore[assignment]  # the one that torchtune needs is too old for peft
    for name, options in {
        "LoraConfig": {"r": 4}, "LoHaConfig": {"r": 4}, "LoKrConfig": {"r": 4}, "AdaLoraConfig": {"total_step": 10},
        "OFTConfig": {"oft_block_size": 4}, "IA3Config": {"feedforward_modules": ["down_proj"]},
        "BOFTConfig": {"boft_block_size": 4},
        "VeraConfig": {"r": 4}, "LNTuningConfig": {}, "FourierFTConfig": {"n_frequency": 10}, "HRAConfig": {"r": 4},
        "MissConfig": {"r": 4},
    }.items():  # fmt: skip
        targets = ["norm"] if name == "LNTuningConfig" else ["q_proj", "v_proj"]
        if name == "IA3Config":
            targets = ["q_proj", "down_proj"]
        yield name, _tuned(name, {**options, "target_modules": targets})
    yield "LoraConfig with DoRA", _tuned("LoraConfig", {"r": 4, "use_dora": True, "target_modules": ["q_proj"]})
    yield "PromptTuningConfig", _tuned("PromptTuningConfig", {"num_virtual_tokens": 3, "task_type": "CAUSAL_LM"})
    yield "PrefixTuningConfig", _tuned("PrefixTuningConfig", {"num_virtual_tokens": 3, "task_type": "CAUSAL_LM"})


def _tuned(name: str, options: dict[str, Any]) -> Build:
    def build() -> Made:
        import peft
        import transformers

        config = transformers.LlamaConfig(
            vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, use_cache=name == "PrefixTuningConfig",
        )  # fmt: skip
        wanted = {"init_weights": False} if name in ("LoraConfig", "LoHaConfig", "LoKrConfig") else {}
        adapted = getattr(peft, name)(**options)
        for key, value in {"init_weights": False, "init_lora_weights": False}.items():
            if wanted and hasattr(adapted, key):
                setattr(adapted, key, value)
        return peft.get_peft_model(transformers.LlamaForCausalLM(config), adapted), {"input_ids": _ids()}

    return build


def _x_transformers() -> Iterator[tuple[str, Build]]:
    x = "x_transformers"
    settings: dict[str, dict[str, Any]] = {
        "Decoder": {}, "Decoder, rotary": {"rotary_pos_emb": True}, "Decoder, ALiBi": {"alibi_pos_bias": True},
        "Decoder, T5 bias": {"rel_pos_bias": True}, "Decoder, GLU": {"ff_glu": True},
        "Decoder, RMSNorm": {"use_rmsnorm": True},
        "Decoder, one KV head": {"attn_one_kv_head": True}, "Decoder, talking heads": {"attn_pre_talking_heads": True},
        "Decoder, memory": {"attn_num_mem_kv": 4}, "Decoder, sandwich": {"sandwich_norm": True},
        "Decoder, residual attention": {"residual_attn": True},
        "Decoder, qk norm": {"attn_qk_norm": True}, "Decoder, flash": {"attn_flash": True},
        "Decoder, macaron": {"macaron": True},
        "Decoder, shift tokens": {"shift_tokens": 1}, "Decoder, gate values": {"attn_gate_values": True},
        "Decoder, dynamic bias": {"dynamic_pos_bias": True}, "Decoder, on attention": {"attn_on_attn": True},
        "Decoder, gate residual": {"gate_residual": True},
    }  # fmt: skip
    for name, options in settings.items():
        yield name, _layers("Decoder", options)
    yield "Encoder", _layers("Encoder", {})
    yield "XTransformer", _made(
        f"{x}.XTransformer", dim=32, enc_num_tokens=64, enc_depth=1, enc_heads=2, enc_max_seq_len=16,
        dec_num_tokens=64, dec_depth=1, dec_heads=2, dec_max_seq_len=16, inputs=lambda: (_ids(), _ids()),
    )  # fmt: skip
    yield (
        "ViTransformerWrapper",
        lambda: (
            _name(f"{x}.ViTransformerWrapper")(
                image_size=32, patch_size=8, num_classes=10, attn_layers=_name(f"{x}.Encoder")(dim=32, depth=2, heads=2)
            ),
            _images(32)(),
        ),
    )
    yield (
        "ContinuousTransformerWrapper",
        lambda: (
            _name(f"{x}.ContinuousTransformerWrapper")(
                dim_in=8, dim_out=4, max_seq_len=16, attn_layers=_name(f"{x}.Encoder")(dim=32, depth=2, heads=2)
            ),
            (torch.randn(2, 12, 8),),
        ),
    )


def _layers(kind: str, options: dict[str, Any]) -> Build:
    def build() -> Made:
        layers = _name(f"x_transformers.{kind}")(dim=32, depth=2, heads=2, **options)
        model = _name("x_transformers.TransformerWrapper")(num_tokens=64, max_seq_len=16, attn_layers=layers)
        return model, (_ids(),)

    return build


def _litgpt() -> Iterator[tuple[str, Build]]:
    for name in (
        "pythia-14m", "Llama-3.2-1B", "Gemma-2-2b", "Gemma-3-1b-it", "phi-2", "Qwen3-0.6B", "Mixtral-8x7B-v0.1",
        "falcon-7b", "stablelm-3b-4e1t", "OLMo-2-1124-7B", "Phi-4-mini-instruct", "Mistral-7B-v0.1", "open_llama_3b",
    ):  # fmt: skip
        yield name, _lit(name, "litgpt.GPT")
    yield "pythia-14m with LoRA", _lit("pythia-14m", "litgpt.lora.GPT")
    yield "pythia-14m with adapter", _lit("pythia-14m", "litgpt.adapter.GPT")
    yield "pythia-14m with adapter v2", _lit("pythia-14m", "litgpt.adapter_v2.GPT")


def _lit(name: str, kind: str) -> Build:
    def build() -> Made:
        from litgpt import Config

        shrunk: dict[str, Any] = {
            "n_layer": 2, "n_embd": 32, "n_head": 4, "head_size": 8, "padded_vocab_size": 64, "block_size": 32,
            "intermediate_size": 64,
        }  # fmt: skip
        known: Any = Config.from_name(name)
        shrunk["n_query_groups"] = 2 if known.n_query_groups not in (1, known.n_head) else None
        if known.n_query_groups == 1:
            shrunk["n_query_groups"] = 1
        if known.n_query_groups == known.n_head:
            shrunk["n_query_groups"] = 4
        if known.moe_intermediate_size:
            shrunk["moe_intermediate_size"] = 32
        if kind == "litgpt.GPT":
            config = Config.from_name(name, **shrunk)
        else:
            module = importlib.import_module(kind.rpartition(".")[0])
            more = (
                {"lora_r": 4, "lora_query": True, "lora_value": True} if "lora" in kind else {"adapter_start_layer": 0}
            )
            config = module.Config.from_name(name, **shrunk, **more)
        return _name(kind)(config), (_ids(),)

    return build


def _torchtune() -> Iterator[tuple[str, Build]]:
    small = {
        "vocab_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "embed_dim": 32, "max_seq_len": 32,
        "intermediate_dim": 64,
    }  # fmt: skip
    m = "torchtune.models"
    yield "llama2", _made(f"{m}.llama2.llama2", **small, inputs=_tokens())
    yield "llama3", _made(f"{m}.llama3.llama3", **small, inputs=_tokens())
    yield "llama3_1", _made(f"{m}.llama3_1.llama3_1", **small, inputs=_tokens())
    yield "llama3_2", _made(f"{m}.llama3_2.llama3_2", **small, inputs=_tokens())
    yield "mistral", _made(f"{m}.mistral.mistral", **small, inputs=_tokens())
    yield "qwen2", _made(f"{m}.qwen2.qwen2", **small, inputs=_tokens())
    yield "phi3", _made(f"{m}.phi3.phi3", **small, inputs=_tokens())
    yield "gemma", _made(f"{m}.gemma.gemma", **small, head_dim=8, inputs=_tokens())
    yield "gemma2", _made(
        f"{m}.gemma2.gemma2", **small, head_dim=8, hidden_capping_value=50.0, final_capping_value=30.0,
        sliding_window_size=8, query_pre_attn_scalar=8, inputs=_tokens(),
    )  # fmt: skip
    tuned = {"lora_attn_modules": ["q_proj", "v_proj"], "lora_rank": 4, "lora_alpha": 8}
    yield "lora_llama2", _made(f"{m}.llama2.lora_llama2", **tuned, **small, inputs=_tokens())
    yield "lora_llama3", _made(f"{m}.llama3.lora_llama3", **tuned, **small, inputs=_tokens())
    yield "llama2_classifier", _made(f"{m}.llama2.llama2_classifier", num_classes=3, **small, inputs=_tokens())
    yield "clip_vision_encoder", _made(
        f"{m}.clip.clip_vision_encoder", tile_size=32, patch_size=8, embed_dim=32, num_layers=2, num_heads=2,
        inputs=lambda: (torch.rand(1, 1, 1, 3, 32, 32),),
    )  # fmt: skip
    yield "clip_text_encoder", _made(
        f"{m}.clip.clip_text_encoder", vocab_size=64, max_seq_len=12, embed_dim=32, num_heads=2, num_layers=2,
        inputs=_tokens(),
    )  # fmt: skip
    yield "t5_encoder", _made(
        f"{m}.t5.t5_encoder", embed_dim=32, mlp_dim=64, num_heads=4, head_dim=8, num_layers=2, rel_pos_num_buckets=8,
        rel_pos_max_dist=16, vocab_size=64, norm_eps=1e-6, max_seq_len=12, inputs=_tokens(),
    )  # fmt: skip


def _open_clip() -> Iterator[tuple[str, Build]]:
    vision = {"layers": 2, "width": 32, "patch_size": 8, "image_size": 32, "head_width": 16}
    text = {"context_length": 16, "vocab_size": 64, "width": 32, "heads": 2, "layers": 2}
    both = lambda: (torch.rand(2, 3, 32, 32), _ids(length=16))  # noqa: E731
    made = {"embed_dim": 16, "text_cfg": text}
    yield "CLIP", _made("open_clip.model.CLIP", **made, vision_cfg=vision, inputs=both)
    yield "CLIP, quick gelu", _made("open_clip.model.CLIP", **made, vision_cfg=vision, quick_gelu=True, inputs=both)
    yield "CustomTextCLIP", _made("open_clip.model.CustomTextCLIP", **made, vision_cfg=vision, inputs=both)
    resnet = {"layers": (1, 1, 1, 1), "width": 16, "image_size": 64, "patch_size": None}
    yield (
        "CLIP, ResNet",
        _made(
            "open_clip.model.CLIP",
            **made,
            vision_cfg=resnet,
            inputs=lambda: (torch.rand(2, 3, 64, 64), _ids(length=16)),
        ),
    )
    yield (
        "CLIP, pooled by attention",
        _made(
            "open_clip.model.CLIP",
            **made,
            vision_cfg={**vision, "attentional_pool": True, "attn_pooler_heads": 2},
            inputs=both,
        ),
    )


def _whisper() -> Iterator[tuple[str, Build]]:
    def build() -> Made:
        from whisper.model import ModelDimensions, Whisper

        sizes = ModelDimensions(
            n_mels=8, n_audio_ctx=16, n_audio_state=32, n_audio_head=2, n_audio_layer=2, n_vocab=64, n_text_ctx=16,
            n_text_state=32, n_text_head=2, n_text_layer=2,
        )  # fmt: skip
        return Whisper(sizes), (torch.randn(2, 8, 32), _ids(length=8))

    yield "Whisper", build


def _mambapy() -> Iterator[tuple[str, Build]]:
    def mamba(pscan: bool) -> Build:
        def build() -> Made:
            from mambapy.mamba import Mamba, MambaConfig

            return Mamba(MambaConfig(d_model=16, n_layers=2, pscan=pscan)), (torch.randn(2, 8, 16),)

        return build

    def jamba() -> Made:
        from mambapy.jamba import Jamba, JambaLMConfig

        config = JambaLMConfig(
            d_model=16, n_layers=4, mlp_size=32, d_state=4, num_attention_heads=2, num_key_value_heads=2,
            num_experts=2, num_experts_per_tok=1, attn_layer_offset=1, attn_layer_period=2, expert_layer_offset=1,
            expert_layer_period=2, vocab_size=64,
        )  # fmt: skip
        return Jamba(config), (torch.randn(2, 8, 16),)

    def vision() -> Made:
        from mambapy.vim import MambaConfig, VMamba

        return VMamba(MambaConfig(d_model=16, n_layers=2)), (torch.randn(2, 8, 16),)

    yield "Mamba", mamba(True)
    yield "Mamba, step by step", mamba(False)
    yield "Jamba", jamba
    yield "VMamba", vision


def _torchaudio() -> Iterator[tuple[str, Build]]:
    m = "torchaudio.models"
    lengths = lambda: torch.tensor([20, 15])  # noqa: E731
    yield "Conformer", _made(f"{m}.Conformer", 16, 2, 32, 2, 3, inputs=lambda: (torch.randn(2, 20, 16), lengths()))
    yield "ConvTasNet", _made(f"{m}.ConvTasNet", 2, 16, 32, 3, 8, 16, 2, 2, inputs=_floats(2, 1, 256))
    yield "DeepSpeech", _made(f"{m}.DeepSpeech", 16, 32, 10, inputs=_floats(2, 1, 12, 16))
    yield "Emformer", _made(
        f"{m}.Emformer", 16, 2, 32, 2, 4, right_context_length=1,
        inputs=lambda: (torch.randn(2, 9, 16), torch.tensor([8, 6])),
    )  # fmt: skip
    yield "Wav2Letter", _made(f"{m}.Wav2Letter", 10, "mfcc", 13, inputs=_floats(2, 13, 40))
    yield "WaveRNN", _made(
        f"{m}.WaveRNN", upsample_scales=[2, 2], n_classes=16, hop_length=4, n_res_block=2, n_rnn=16, n_fc=16,
        kernel_size=5, n_freq=8, n_hidden=8, n_output=8,
        inputs=lambda: (torch.rand(2, 1, 24), torch.rand(2, 1, 8, 10)[..., :10]),
    )  # fmt: skip
    yield "Tacotron2", _made(
        f"{m}.Tacotron2", n_mels=8, n_symbol=20, symbol_embedding_dim=16, encoder_embedding_dim=16,
        attention_rnn_dim=16, attention_hidden_dim=8, decoder_rnn_dim=16, prenet_dim=8, postnet_embedding_dim=16,
        inputs=lambda: (
            torch.randint(0, 20, (2, 6)), torch.tensor([6, 5]), torch.randn(2, 8, 10), torch.tensor([10, 8])
        ),
    )  # fmt: skip
    yield "HDemucs", _made(f"{m}.HDemucs", ["a", "b"], channels=8, nfft=256, depth=4, inputs=_floats(1, 2, 4096))
    wave = {
        "extractor_mode": "group_norm", "extractor_conv_layer_config": [(16, 10, 5), (16, 3, 2)],
        "extractor_conv_bias": False, "encoder_embed_dim": 32, "encoder_projection_dropout": 0.0,
        "encoder_pos_conv_kernel": 4, "encoder_pos_conv_groups": 2, "encoder_num_layers": 2, "encoder_num_heads": 2,
        "encoder_attention_dropout": 0.0, "encoder_ff_interm_features": 64, "encoder_ff_interm_dropout": 0.0,
        "encoder_dropout": 0.0, "encoder_layer_norm_first": False, "encoder_layer_drop": 0.0, "aux_num_out": 10,
    }  # fmt: skip
    yield "wav2vec2_model", _made(f"{m}.wav2vec2_model", **wave, inputs=lambda: (torch.randn(2, 400),))
    yield (
        "wavlm_model",
        _made(f"{m}.wavlm_model", **wave, encoder_num_buckets=8, encoder_max_distance=16, inputs=_floats(2, 400)),
    )
    for name, options in {
        "Spectrogram": {"n_fft": 64}, "MelSpectrogram": {"n_fft": 64, "n_mels": 8}, "AmplitudeToDB": {},
        "MFCC": {"n_mfcc": 8, "melkwargs": {"n_fft": 64, "n_mels": 16}}, "Resample": {"orig_freq": 16, "new_freq": 8},
        "ComputeDeltas": {}, "MuLawEncoding": {}, "TimeStretch": {"n_freq": 33, "fixed_rate": 1.2},
        "FrequencyMasking": {"freq_mask_param": 4}, "PitchShift": {"sample_rate": 800, "n_steps": 2, "n_fft": 64},
        "SpectralCentroid": {"sample_rate": 800, "n_fft": 64}, "GriffinLim": {"n_fft": 64, "n_iter": 3},
    }.items():  # fmt: skip
        shapes: dict[str, Callable[[], Any]] = {
            "TimeStretch": lambda: (torch.randn(2, 33, 10, dtype=torch.cfloat),),
            "GriffinLim": lambda: (torch.rand(2, 33, 10),),
        }  # fmt: skip
        yield name, _made(f"torchaudio.transforms.{name}", **options, inputs=shapes.get(name, _floats(2, 400)))


def _speechbrain() -> Iterator[tuple[str, Build]]:
    m = "speechbrain.lobes.models"
    features = _floats(2, 20, 16)
    yield "CRDNN", _made(
        f"{m}.CRDNN.CRDNN", input_shape=(2, 20, 16), cnn_blocks=1, cnn_channels=(4,), rnn_layers=1, rnn_neurons=16,
        dnn_blocks=1, dnn_neurons=16, inputs=features,
    )  # fmt: skip
    yield "ECAPA_TDNN", _made(
        f"{m}.ECAPA_TDNN.ECAPA_TDNN", 16, lin_neurons=16, channels=[16, 16, 16, 16, 48],
        kernel_sizes=[5, 3, 3, 3, 1], dilations=[1, 2, 3, 4, 1], attention_channels=8, res2net_scale=4, se_channels=8,
        inputs=features,
    )  # fmt: skip
    yield "Xvector", _made(
        f"{m}.Xvector.Xvector", tdnn_blocks=2, tdnn_channels=[16, 16], tdnn_kernel_sizes=[3, 1],
        tdnn_dilations=[1, 1], lin_neurons=16, in_channels=16, inputs=features,
    )  # fmt: skip
    yield "VanillaNN", _made(f"{m}.VanillaNN.VanillaNN", (2, 20, 16), dnn_neurons=16, inputs=features)
    yield "ResNet", _made(f"{m}.ResNet.ResNet", 16, channels=[8, 8, 8, 8], block_sizes=[1, 1, 1, 1], strides=[1, 1,
    2, 2], lin_neurons=8, inputs=features)  # fmt: skip
    yield "ContextNet", _made(
        f"{m}.ContextNet.ContextNet", (2, 20, 16), out_channels=16, conv_channels=[16, 16], kernel_size=3,
        num_blocks=2, num_layers=1, inner_dim=4, strides=[1, 1], inputs=features,
    )  # fmt: skip
    transformer = "speechbrain.lobes.models.transformer"
    for encoder in ("transformer", "conformer", "branchformer"):
        yield f"TransformerASR, {encoder}", _made(
            f"{transformer}.TransformerASR.TransformerASR", tgt_vocab=20, input_size=16, d_model=16, nhead=2,
            num_encoder_layers=1, num_decoder_layers=1, d_ffn=32, encoder_module=encoder,
            attention_type="RelPosMHAXL" if encoder != "transformer" else "regularMHA",
            normalize_before=True, causal=False, csgu_linear_units=32, inputs=lambda: (torch.randn(2, 20, 16),
            torch.randint(1, 20, (2, 5))),
        )  # fmt: skip
    yield "TransformerLM", _made(
        f"{transformer}.TransformerLM.TransformerLM", vocab=20, d_model=16, nhead=2, num_encoder_layers=1, d_ffn=32,
        inputs=_tokens(20),
    )  # fmt: skip
    yield (
        "RNNLM",
        _made(f"{m}.RNNLM.RNNLM", 20, embedding_dim=8, rnn_layers=1, rnn_neurons=16, dnn_neurons=8, inputs=_tokens(20)),
    )
    yield (
        "SepFormer block",
        _made(f"{m}.dual_path.SBTransformerBlock", num_layers=1, d_model=16, nhead=2, d_ffn=32, inputs=features),
    )
    yield "Encoder of dual path", _made(f"{m}.dual_path.Encoder", 16, 16, inputs=_floats(2, 400))
    yield "Fbank", _made("speechbrain.lobes.features.Fbank", n_mels=8, inputs=_floats(2, 1600))
    yield "MFCC", _made("speechbrain.lobes.features.MFCC", n_mels=23, inputs=_floats(2, 1600))
    for name in ("LSTM", "GRU", "LiGRU", "RNN"):
        yield f"nnet.{name}", _made(f"speechbrain.nnet.RNN.{name}", 8, input_shape=(2, 20, 16), inputs=features)


ENTRIES: dict[str, Callable[[], Iterator[tuple[str, Build]]]] = {
    "timm": _timm, "torchvision": _torchvision, "torch_geometric": _torch_geometric, "diffusers": _diffusers,
    "vit-pytorch": _vit_pytorch, "torchaudio": _torchaudio, "peft": _peft, "x-transformers": _x_transformers,
    "ultralytics": _ultralytics, "litgpt": _litgpt, "torchtune": _torchtune, "monai": _monai, "gpytorch": _gpytorch,
    "segmentation-models-pytorch": _segmentation, "speechbrain": _speechbrain, "kornia": _kornia, "e3nn": _e3nn,
    "open_clip_torch": _open_clip, "openai-whisper": _whisper, "segment-anything": _segment_anything,
    "mambapy": _mambapy, "torchdiffeq": _torchdiffeq,
}  # fmt: skip
