"""Resources as Azure's models have them, in JSON that the SDKs read.
They are drawn up when they are asked for: what is kept of a resource is a tenth of it."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from standins.azure.resources import TYPES, Disk, Nic, PublicIp, Vm, name_in, refer
from standins.azure.thing import Thing


def document(thing: Thing) -> dict[str, Any]:
    made = thing.made
    shown: dict[str, Any] = {
        "name": made.name,
        "id": thing.id,
        "type": TYPES[thing.kind],
        "location": made.region,
        "tags": made.tags,
    }
    match made:
        case Nic():
            shown |= {"etag": _etag(thing), "properties": _nic(thing, made)}
        case Vm():
            shown["properties"] = _vm(thing, made)
        case Disk():
            shown |= {"sku": {"name": "Premium_LRS", "tier": "Premium"}, "properties": _disk(thing)}
            if thing.holder:
                shown["managedBy"] = thing.holder
        case PublicIp():
            shown |= {"etag": _etag(thing), "sku": {"name": "Standard"}, "properties": _ip(thing)}
    return shown


def _nic(thing: Thing, made: Nic) -> dict[str, Any]:
    numbers = sha256(thing.key.encode()).digest()
    inside: dict[str, Any] = {
        "provisioningState": thing.state,
        "privateIPAddress": f"10.{224 + numbers[0] % 16}.{numbers[1]}.{numbers[2]}",
        "privateIPAllocationMethod": "Dynamic",
        "primary": True,
    }
    if made.public_ip:
        inside["publicIPAddress"] = {
            "id": refer(made, "ip", made.public_ip),
            "properties": {"deleteOption": made.ip_delete},
        }
    configuration = {
        "name": made.name,
        "id": f"{thing.id}/ipConfigurations/{made.name}",
        "etag": _etag(thing),
        "properties": inside,
    }
    shown: dict[str, Any] = {
        "provisioningState": thing.state,
        "resourceGuid": thing.guid,
        "ipConfigurations": [configuration],
        "enableAcceleratedNetworking": False,
        "enableIPForwarding": False,
        "nicType": "Standard",
    }
    if thing.holder:
        mac = "-".join(f"{number:02X}" for number in numbers[3:6])
        shown |= {"virtualMachine": {"id": thing.holder}, "primary": True, "macAddress": f"00-0D-3A-{mac}"}
    return shown


def _vm(thing: Thing, made: Vm) -> dict[str, Any]:
    interfaces = [
        {
            "id": refer(made, "nic", named),
            "properties": {"primary": number == 0, "deleteOption": made.option("nic", name_in(named))},
        }
        for number, named in enumerate(made.nics)
    ]
    storage: dict[str, Any] = {"dataDisks": [_drive(made, one, lun) for lun, one in enumerate(made.data_disks)]}
    if made.disk:
        storage["osDisk"] = {"osType": "Linux", **_drive(made, made.disk)}
    return {
        "vmId": thing.guid,
        "provisioningState": thing.state,
        "timeCreated": _moment(thing.stamp),
        "hardwareProfile": {"vmSize": "Standard_D2s_v5"},
        "networkProfile": {"networkInterfaces": interfaces},
        "storageProfile": storage,
    }


def _drive(made: Vm, named: str, lun: int | None = None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": name_in(named),
        "createOption": "FromImage" if lun is None else "Attach",
        "managedDisk": {"id": refer(made, "disk", named)},
        "deleteOption": made.option("disk", name_in(named)),
    }
    return shown if lun is None else {"lun": lun, **shown}


def _disk(thing: Thing) -> dict[str, Any]:
    return {
        "provisioningState": thing.state,
        "uniqueId": thing.guid,
        "timeCreated": _moment(thing.stamp),
        "diskState": "Attached" if thing.holder else "Unattached",
        "diskSizeGB": 128,
        "creationData": {"createOption": "Empty"},
    }


def _ip(thing: Thing) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "provisioningState": thing.state,
        "resourceGuid": thing.guid,
        "publicIPAllocationMethod": "Static",
        "publicIPAddressVersion": "IPv4",
    }
    if thing.holder:
        shown["ipConfiguration"] = {"id": f"{thing.holder}/ipConfigurations/{name_in(thing.holder)}"}
    return shown


def _etag(thing: Thing) -> str:
    return f'W/"{thing.guid[:24]}{thing.version:012x}"'


def _moment(stamp: float) -> str:
    return datetime.fromtimestamp(stamp, UTC).isoformat(timespec="microseconds")
