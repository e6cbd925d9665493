"""JSON documents of resources, in the shape that the Azure SDKs read.
They are built on each read: a stored resource is a tenth of that size."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from standins.azure.resources import TYPES, Disk, Nic, PublicIp, Vm, name_in, refer
from standins.azure.stored_resources import StoredResource


def document(resource: StoredResource) -> dict[str, Any]:
    spec = resource.spec
    shown: dict[str, Any] = {
        "name": spec.name,
        "id": resource.id,
        "type": TYPES[resource.kind],
        "location": spec.region,
        "tags": spec.tags,
    }
    match spec:
        case Nic():
            shown |= {"etag": _etag(resource), "properties": _nic(resource, spec)}
        case Vm():
            shown["properties"] = _vm(resource, spec)
        case Disk():
            shown |= {"sku": {"name": "Premium_LRS", "tier": "Premium"}, "properties": _disk(resource)}
            if resource.holder:
                shown["managedBy"] = resource.holder
        case PublicIp():
            shown |= {"etag": _etag(resource), "sku": {"name": "Standard"}, "properties": _ip(resource)}
    return shown


def _nic(resource: StoredResource, spec: Nic) -> dict[str, Any]:
    numbers = sha256(resource.key.encode()).digest()
    inside: dict[str, Any] = {
        "provisioningState": resource.state,
        "privateIPAddress": f"10.{224 + numbers[0] % 16}.{numbers[1]}.{numbers[2]}",
        "privateIPAllocationMethod": "Dynamic",
        "primary": True,
    }
    if spec.public_ip:
        inside["publicIPAddress"] = {
            "id": refer(spec, "ip", spec.public_ip),
            "properties": {"deleteOption": spec.ip_delete},
        }
    configuration = {
        "name": spec.name,
        "id": f"{resource.id}/ipConfigurations/{spec.name}",
        "etag": _etag(resource),
        "properties": inside,
    }
    shown: dict[str, Any] = {
        "provisioningState": resource.state,
        "resourceGuid": resource.guid,
        "ipConfigurations": [configuration],
        "enableAcceleratedNetworking": False,
        "enableIPForwarding": False,
        "nicType": "Standard",
    }
    if resource.holder:
        mac = "-".join(f"{number:02X}" for number in numbers[3:6])
        shown |= {"virtualMachine": {"id": resource.holder}, "primary": True, "macAddress": f"00-0D-3A-{mac}"}
    return shown


def _vm(resource: StoredResource, spec: Vm) -> dict[str, Any]:
    interfaces = [
        {
            "id": refer(spec, "nic", named),
            "properties": {"primary": number == 0, "deleteOption": spec.option("nic", name_in(named))},
        }
        for number, named in enumerate(spec.nics)
    ]
    storage: dict[str, Any] = {"dataDisks": [_drive(spec, one, lun) for lun, one in enumerate(spec.data_disks)]}
    if spec.disk:
        storage["osDisk"] = {"osType": "Linux", **_drive(spec, spec.disk)}
    return {
        "vmId": resource.guid,
        "provisioningState": resource.state,
        "timeCreated": _moment(resource.stamp),
        "hardwareProfile": {"vmSize": "Standard_D2s_v5"},
        "networkProfile": {"networkInterfaces": interfaces},
        "storageProfile": storage,
    }


def _drive(spec: Vm, named: str, lun: int | None = None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": name_in(named),
        "createOption": "FromImage" if lun is None else "Attach",
        "managedDisk": {"id": refer(spec, "disk", named)},
        "deleteOption": spec.option("disk", name_in(named)),
    }
    return shown if lun is None else {"lun": lun, **shown}


def _disk(resource: StoredResource) -> dict[str, Any]:
    return {
        "provisioningState": resource.state,
        "uniqueId": resource.guid,
        "timeCreated": _moment(resource.stamp),
        "diskState": "Attached" if resource.holder else "Unattached",
        "diskSizeGB": 128,
        "creationData": {"createOption": "Empty"},
    }


def _ip(resource: StoredResource) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "provisioningState": resource.state,
        "resourceGuid": resource.guid,
        "publicIPAllocationMethod": "Static",
        "publicIPAddressVersion": "IPv4",
    }
    if resource.holder:
        shown["ipConfiguration"] = {"id": f"{resource.holder}/ipConfigurations/{name_in(resource.holder)}"}
    return shown


def _etag(resource: StoredResource) -> str:
    return f'W/"{resource.guid[:24]}{resource.version:012x}"'


def _moment(stamp: float) -> str:
    return datetime.fromtimestamp(stamp, UTC).isoformat(timespec="microseconds")
