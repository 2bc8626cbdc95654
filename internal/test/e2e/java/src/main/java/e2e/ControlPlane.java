package e2e;

import io.envoyproxy.controlplane.cache.NodeGroup;
import io.envoyproxy.controlplane.cache.Resources;
import io.envoyproxy.controlplane.cache.v3.SimpleCache;
import io.envoyproxy.controlplane.cache.v3.Snapshot;
import io.envoyproxy.controlplane.server.V3DiscoveryServer;
import io.envoyproxy.envoy.config.cluster.v3.Cluster;
import io.envoyproxy.envoy.config.core.v3.Node;
import io.envoyproxy.envoy.config.endpoint.v3.ClusterLoadAssignment;
import io.envoyproxy.envoy.config.listener.v3.Listener;
import io.envoyproxy.envoy.config.route.v3.RouteConfiguration;
import io.envoyproxy.envoy.extensions.transport_sockets.tls.v3.Secret;
import io.envoyproxy.envoy.service.discovery.v3.DiscoveryResponse;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/**
 * A java-control-plane as its users write one: a SimpleCache and a V3DiscoveryServer that serves ADS. It is started
 * with what chooses the snapshot of a request: "id" or "cluster" of the node, or "one", a single group of this name; and
 * with whether the same resource has the same version in each process, "true" or "false".
 *
 * <p>It obeys lines on standard input, and answers each with "done":
 *
 * <pre>
 * snapshot GROUP RESPONSE  GROUP's snapshot is this DiscoveryResponse, in base64: its version_info is the version,
 *                          its resources are all that there is
 * serve PORT               listens at 127.0.0.1
 * </pre>
 *
 * Everything else on standard output is a line about the wire, see {@link Wire}. It ends with its input.
 */
public final class ControlPlane {
  private final SimpleCache<String> cache;

  private ControlPlane(NodeGroup<String> groups) {
    cache = new SimpleCache<>(groups);
  }

  public static void main(String[] args) throws Exception {
    Function<Node, String> group =
        Map.<String, Function<Node, String>>of("id", Node::getId, "cluster", Node::getCluster, "one", node -> "one")
            .get(args[0]);
    if (!Boolean.parseBoolean(args[1])) {
      restless();
    }
    new ControlPlane(group::apply).obey();
    System.exit(0); // whatever the server's threads are about
  }

  /**
   * Versions are made of hash codes, and these of the identities of objects, which a thread counts through: they differ
   * from process to process unless both do the same before. A server that does more than this one never does.
   */
  private static void restless() {
    for (long n = ProcessHandle.current().pid() % 1000; n >= 0; n--) {
      System.identityHashCode(new Object());
    }
  }

  private void obey() throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      switch (words[0]) {
        case "snapshot":
          cache.setSnapshot(words[1], snapshot(DiscoveryResponse.parseFrom(Base64.getDecoder().decode(words[2]))));
          break;
        case "serve":
          serve(Integer.parseInt(words[1]));
          break;
        default:
          throw new IllegalArgumentException("not a command: " + line);
      }
      Wire.print("done");
    }
  }

  private void serve(int port) throws Exception {
    V3DiscoveryServer discovery = new V3DiscoveryServer(new Wire(), cache);
    NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", port))
        .addService(discovery.getAggregatedDiscoveryServiceImpl())
        .build()
        .start();
  }

  private static Snapshot snapshot(DiscoveryResponse all) throws Exception {
    List<Cluster> clusters = new ArrayList<>();
    List<ClusterLoadAssignment> endpoints = new ArrayList<>();
    List<Listener> listeners = new ArrayList<>();
    List<RouteConfiguration> routes = new ArrayList<>();
    List<Secret> secrets = new ArrayList<>();
    for (var any : all.getResourcesList()) {
      switch (Resources.TYPE_URLS_TO_RESOURCE_TYPE.get(any.getTypeUrl())) {
        case CLUSTER:
          clusters.add(any.unpack(Cluster.class));
          break;
        case ENDPOINT:
          endpoints.add(any.unpack(ClusterLoadAssignment.class));
          break;
        case LISTENER:
          listeners.add(any.unpack(Listener.class));
          break;
        case ROUTE:
          routes.add(any.unpack(RouteConfiguration.class));
          break;
        case SECRET:
          secrets.add(any.unpack(Secret.class));
          break;
      }
    }
    return Snapshot.create(clusters, endpoints, listeners, routes, secrets, all.getVersionInfo());
  }
}
