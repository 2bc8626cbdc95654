package e2e;

import com.google.protobuf.Any;
import io.envoyproxy.controlplane.cache.Resources;
import io.envoyproxy.controlplane.server.DiscoveryServerCallbacks;
import io.envoyproxy.envoy.service.discovery.v3.DeltaDiscoveryRequest;
import io.envoyproxy.envoy.service.discovery.v3.DeltaDiscoveryResponse;
import io.envoyproxy.envoy.service.discovery.v3.DiscoveryRequest;
import io.envoyproxy.envoy.service.discovery.v3.DiscoveryResponse;
import io.envoyproxy.envoy.service.discovery.v3.Resource;
import java.util.Collection;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;

/**
 * Says on standard output, one line each, what the server is asked (">") and what it answers ("<"): the stream's
 * number, the type's short name, then whatever of the message is not empty, names sorted. A resource is told as
 * name@version, of which eight digits.
 */
final class Wire implements DiscoveryServerCallbacks {
  static synchronized void print(String line) {
    System.out.println(line);
    System.out.flush();
  }

  @Override
  public void onStreamOpen(long stream, String typeUrl) {
    print(stream + " open");
  }

  @Override
  public void onStreamClose(long stream, String typeUrl) {
    print(stream + " closed");
  }

  @Override
  public void onStreamCloseWithError(long stream, String typeUrl, Throwable error) {
    print(stream + " failed: " + error);
  }

  @Override
  public void onV3StreamDeltaRequest(long stream, DeltaDiscoveryRequest r) {
    line(stream, ">", r.getTypeUrl())
        .add("node", r.getNode().getId())
        .add("sub", r.getResourceNamesSubscribeList())
        .add("unsub", r.getResourceNamesUnsubscribeList())
        .add("init", r.getInitialResourceVersionsMap().keySet())
        .add("ack", r.hasErrorDetail() ? "" : r.getResponseNonce())
        .add("nack", r.hasErrorDetail() ? r.getResponseNonce() + " " + r.getErrorDetail().getMessage() : "")
        .print();
  }

  @Override
  public void onV3StreamDeltaResponse(long stream, DeltaDiscoveryRequest request, DeltaDiscoveryResponse r) {
    var set = new TreeMap<String, String>();
    for (Resource resource : r.getResourcesList()) {
      set.put(resource.getName(), resource.getVersion());
    }
    line(stream, "<", r.getTypeUrl())
        .add("nonce", r.getNonce())
        .add("version", r.getSystemVersionInfo())
        .add("set", set.entrySet().stream().map(e -> versioned(e.getKey(), e.getValue())).collect(Collectors.toList()))
        .add("removed", r.getRemovedResourcesList())
        .print();
  }

  @Override
  public void onV3StreamRequest(long stream, DiscoveryRequest r) {
    line(stream, ">", r.getTypeUrl())
        .add("node", r.getNode().getId())
        .add("names", r.getResourceNamesList())
        .add("version", r.getVersionInfo())
        .add("ack", r.hasErrorDetail() ? "" : r.getResponseNonce())
        .add("nack", r.hasErrorDetail() ? r.getResponseNonce() + " " + r.getErrorDetail().getMessage() : "")
        .print();
  }

  @Override
  public void onV3StreamResponse(long stream, DiscoveryRequest request, DiscoveryResponse r) {
    line(stream, "<", r.getTypeUrl())
        .add("nonce", r.getNonce())
        .add("version", r.getVersionInfo())
        .add("set", r.getResourcesList().stream().map((Any a) -> Resources.getResourceName(a)).collect(Collectors.toList()))
        .print();
  }

  private static String versioned(String name, String version) {
    return name + "@" + version.substring(0, Math.min(8, version.length()));
  }

  private static Line line(long stream, String direction, String typeUrl) {
    return new Line(stream + " " + direction + " " + typeUrl.substring(typeUrl.lastIndexOf('.') + 1));
  }

  private static final class Line {
    private final StringBuilder text;

    Line(String begin) {
      text = new StringBuilder(begin);
    }

    Line add(String what, String value) {
      if (!value.isEmpty()) {
        text.append(' ').append(what).append('=').append(value);
      }
      return this;
    }

    Line add(String what, Collection<String> names) {
      return names.isEmpty() ? this : add(what, new TreeSet<>(names).toString());
    }

    void print() {
      Wire.print(text.toString());
    }
  }
}
