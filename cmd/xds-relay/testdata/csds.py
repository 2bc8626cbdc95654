# Prints what the CSDS of a relay says: python3 csds.py ADDRESS. Wants the packages grpcio and xds-protos.
import sys

import grpc
from envoy.admin.v3 import config_dump_shared_pb2
from envoy.service.status.v3 import csds_pb2, csds_pb2_grpc

client = csds_pb2_grpc.ClientStatusDiscoveryServiceStub(grpc.insecure_channel(sys.argv[1]))
request = csds_pb2.ClientStatusRequest()
for config in client.FetchClientStatus(request, timeout=30).config:
    for resource in config.generic_xds_configs:
        print("own", config_dump_shared_pb2.ClientResourceStatus.Name(resource.client_status), resource.name)
request.node_matchers.add()
for config in client.FetchClientStatus(request, timeout=30).config:
    for resource in config.generic_xds_configs:
        print(config.node.id, csds_pb2.ConfigStatus.Name(resource.config_status), resource.name)
