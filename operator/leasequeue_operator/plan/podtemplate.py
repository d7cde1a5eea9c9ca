"""The user's overlay on the worker's pod template: what is refused, and how the rest is merged.

Pods are made with the operator's rights, so the overlay may ask for nothing that the *restricted* Pod Security Standard
forbids, name no service account and pick no node: whoever may write a LeaseQueue gets no more than a plain pod of that
namespace. Keys are allowed by name; whatever a newer Kubernetes adds is refused until it is listed here.
Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from leasequeue_operator.plan.names import COMPONENT_LABEL, QUEUE_LABEL, UID_LABEL
from leasequeue_operator.plan.spec import SpecError

WORKER = "worker"
_ROOT = "spec.worker.podTemplate"
_POD_KEYS = frozenset({
    "affinity", "containers", "dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases", "imagePullSecrets",
    "initContainers", "nodeSelector", "preemptionPolicy", "priorityClassName", "runtimeClassName", "schedulerName",
    "securityContext", "tolerations", "topologySpreadConstraints", "volumes",
})  # fmt: skip
_WORKER_KEYS = frozenset({
    "name", "env", "envFrom", "lifecycle", "livenessProbe", "readinessProbe", "resources", "securityContext",
    "startupProbe", "volumeMounts", "workingDir",
})  # fmt: skip
_CONTAINER_KEYS = _WORKER_KEYS | {
    "args", "command", "image", "imagePullPolicy", "ports", "restartPolicy", "terminationMessagePath",
    "terminationMessagePolicy",
}  # fmt: skip
_VOLUME_KINDS = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
_POD_SECURITY = frozenset(
    {
        "fsGroup",
        "fsGroupChangePolicy",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "seccompProfile",
        "supplementalGroups",
    }
)
_CONTAINER_SECURITY = frozenset(
    {"allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem", "runAsGroup", "runAsNonRoot", "runAsUser",
     "seccompProfile"}
)  # fmt: skip
_OWN_LABELS = (UID_LABEL, QUEUE_LABEL, COMPONENT_LABEL)
_OWN_VOLUMES = frozenset({"tmp", "database", "database-ca"})
# Lists that Kubernetes itself merges by a key (strategic merge); all other lists are replaced.
_MERGE_KEYS = {"containers": "name", "initContainers": "name", "volumes": "name", "env": "name",
               "volumeMounts": "mountPath", "imagePullSecrets": "name", "ports": "containerPort"}  # fmt: skip

RESTRICTED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
}


def check(overlay: Mapping[str, Any]) -> None:
    """Refuse what an overlay may not ask for.

    Raises:
        SpecError: PodTemplateRefused; names the first field at fault and the way out.
    """
    _object(overlay, _ROOT)
    _only(overlay, {"metadata", "spec"}, _ROOT)
    _check_metadata(_object(overlay.get("metadata", {}), f"{_ROOT}.metadata"))
    pod = _object(overlay.get("spec", {}), f"{_ROOT}.spec")
    _only(pod, _POD_KEYS, f"{_ROOT}.spec")
    _check_security(pod.get("securityContext", {}), _POD_SECURITY, f"{_ROOT}.spec.securityContext")
    for kind in ("containers", "initContainers"):
        for i, container in enumerate(_array(pod.get(kind, []), f"{_ROOT}.spec.{kind}")):
            _check_container(container, kind, f"{_ROOT}.spec.{kind}[{i}]")
    for i, volume in enumerate(_array(pod.get("volumes", []), f"{_ROOT}.spec.volumes")):
        _check_volume(volume, f"{_ROOT}.spec.volumes[{i}]")


def _refuse(path: str, problem: str) -> SpecError:
    return SpecError("PodTemplateRefused", f"{path} {problem}")


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _refuse(path, "must be an object: see `kubectl explain pod.spec`.")
    return value


def _array(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise _refuse(path, "must be a list: see `kubectl explain pod.spec`.")
    return value


def _only(value: Mapping[str, Any], allowed: Iterable[str], path: str) -> None:
    for key in value:
        if key not in allowed:
            raise _refuse(f"{path}.{key}", "cannot be set here: remove it.")


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    path = f"{_ROOT}.metadata"
    _only(metadata, {"labels", "annotations"}, path)
    labels = _object(metadata.get("labels", {}), f"{path}.labels")
    _object(metadata.get("annotations", {}), f"{path}.annotations")
    for label in _OWN_LABELS:
        if label in labels:
            raise _refuse(f"{path}.labels[{label}]", "is the operator's: use another label.")


def _check_container(container: Any, kind: str, path: str) -> None:
    container = _object(container, path)
    name = container.get("name")
    if not isinstance(name, str) or not name:
        raise _refuse(f"{path}.name", "is missing: name the container.")
    own = kind == "containers" and name == WORKER
    for key in container:
        if own and key in ("image", "imagePullPolicy", "command", "args"):
            raise _refuse(f"{path}.{key}", "cannot be set for the container worker: use spec.worker instead.")
    _only(container, _WORKER_KEYS if own else _CONTAINER_KEYS, path)
    _check_security(container.get("securityContext", {}), _CONTAINER_SECURITY, f"{path}.securityContext")
    for j, port in enumerate(_array(container.get("ports", []), f"{path}.ports")):
        if "hostPort" in _object(port, f"{path}.ports[{j}]"):
            raise _refuse(f"{path}.ports[{j}].hostPort", "reaches the host: remove it.")
    for j, variable in enumerate(_array(container.get("env", []), f"{path}.env")):
        variable_name = _object(variable, f"{path}.env[{j}]").get("name", "")
        if own and str(variable_name).startswith("LEASEQUEUE_"):
            raise _refuse(f"{path}.env[{j}].name", f"{variable_name} is the operator's: use the field of the same meaning.")


def _check_security(context: Any, allowed: Iterable[str], path: str) -> None:
    context = _object(context, path)
    _only(context, allowed, path)
    if context.get("allowPrivilegeEscalation") is True:
        raise _refuse(f"{path}.allowPrivilegeEscalation", "must stay false: remove it.")
    if context.get("runAsNonRoot") is False or context.get("runAsUser") == 0:
        raise _refuse(f"{path}.runAsUser", "must not be root: give another user id, or remove it.")
    added = set(_object(context.get("capabilities", {}), f"{path}.capabilities").get("add", []))
    if added - {"NET_BIND_SERVICE"}:
        raise _refuse(f"{path}.capabilities.add", "may hold NET_BIND_SERVICE alone: remove the others.")
    profile = _object(context.get("seccompProfile", {}), f"{path}.seccompProfile")
    if profile.get("type", "RuntimeDefault") not in ("RuntimeDefault", "Localhost"):
        raise _refuse(f"{path}.seccompProfile.type", "must be RuntimeDefault or Localhost.")


def _check_volume(volume: Any, path: str) -> None:
    volume = _object(volume, path)
    name = volume.get("name")
    if name in _OWN_VOLUMES:
        raise _refuse(f"{path}.name", f"{name} is the operator's: use another name.")
    for kind in volume:
        if kind not in _VOLUME_KINDS | {"name"}:
            raise _refuse(f"{path}.{kind}", f"is not allowed: use one of {', '.join(sorted(_VOLUME_KINDS))}.")


def merge(template: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """The pod template with the overlay on it; containers that the overlay adds get the restricted security context.

    Args:
        template: our pod template.
        overlay: the user's, already checked.
    """
    merged = _merge_objects(template, overlay)
    for kind in ("containers", "initContainers"):
        for container in merged["spec"].get(kind, []):
            container["securityContext"] = _merge_objects(RESTRICTED, container.get("securityContext", {}))
            # An addition to the capabilities keeps the drop of all others.
            container["securityContext"]["capabilities"]["drop"] = ["ALL"]
    return merged


def _merge_objects(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key: _copy(value) for key, value in below.items()}
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            merged[key] = _merge_objects(old, value)
        elif key in _MERGE_KEYS and isinstance(value, list) and isinstance(old, list):
            merged[key] = _merge_lists(old, value, _MERGE_KEYS[key])
        else:
            merged[key] = _copy(value)
    return merged


def _merge_lists(below: list[Any], above: list[Any], key: str) -> list[Any]:
    merged = {item.get(key): item for item in below}
    for item in above:
        old = merged.get(item.get(key), {})
        merged[item.get(key)] = _merge_objects(old, item)
    return list(merged.values())


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _copy(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_copy(v) for v in value]
    return value
