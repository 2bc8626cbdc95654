package e2e;

import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import io.grpc.xds.XdsChannelCredentials;
import io.grpc.xds.XdsServerBuilder;
import io.grpc.xds.XdsServerCredentials;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * An application that finds its services through xDS, or is found through it, as users of grpc-java write one. The
 * bootstrap is in the environment, as always: GRPC_XDS_BOOTSTRAP_CONFIG.
 *
 * <pre>
 * server PORT NAME  answers every call with its name once its listener has come, and says on standard output when it
 *                   serves, and when it does not any more
 * client TARGET     obeys lines on standard input, and answers each with one:
 *   call MILLIS     makes one call, which may wait so long for the service: "ok NAME" or "failed STATUS"
 *   load PER_SECOND makes so many calls a second from now on, none of which waits for anything: "ok"
 *   count           how many of these have ended, and how: "NAME=n … failed=n FIRST-STATUS"
 * </pre>
 *
 * Either ends with its input.
 */
public final class XdsApp {
  /** grpc.testing.TestService, of whose messages only one field matters here. */
  private static final MethodDescriptor<String, String> UNARY_CALL =
      MethodDescriptor.newBuilder(new ServerId(), new ServerId())
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("grpc.testing.TestService/UnaryCall")
          .build();

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    if (args[0].equals("server")) {
      serve(Integer.parseInt(args[1]), args[2]);
      while (in.readLine() != null) {
        // nothing to obey
      }
    } else {
      new Client(args[1]).obey(in);
    }
    System.exit(0); // whatever gRPC's threads are about
  }

  private static synchronized void print(String line) {
    System.out.println(line.replace('\n', ' '));
    System.out.flush();
  }

  private static void serve(int port, String name) throws IOException {
    var service =
        ServerServiceDefinition.builder("grpc.testing.TestService")
            .addMethod(
                UNARY_CALL,
                ServerCalls.asyncUnaryCall(
                    (String request, StreamObserver<String> answer) -> {
                      answer.onNext(name);
                      answer.onCompleted();
                    }))
            .build();
    XdsServerBuilder.forPort(port, XdsServerCredentials.create(InsecureServerCredentials.create()))
        .xdsServingStatusListener(
            new XdsServerBuilder.XdsServingStatusListener() {
              @Override
              public void onServing() {
                print("serving");
              }

              @Override
              public void onNotServing(Throwable why) {
                print("not serving: " + why);
              }
            })
        .addService(service)
        .build()
        .start(); // returns when the first listener has come, or is known to be missing
  }

  private static final class Client {
    private final ManagedChannel channel;
    private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
    private final Map<String, Integer> answered = new TreeMap<>();
    private int failed;
    private String firstFailure = "";

    Client(String target) {
      channel = Grpc.newChannelBuilder(target, XdsChannelCredentials.create(InsecureChannelCredentials.create())).build();
    }

    void obey(BufferedReader in) throws IOException {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        String[] words = line.split(" ");
        switch (words[0]) {
          case "call":
            print(call(Integer.parseInt(words[1])));
            break;
          case "load":
            clock.scheduleAtFixedRate(this::begin, 0, 1_000_000 / Integer.parseInt(words[1]), TimeUnit.MICROSECONDS);
            print("ok");
            break;
          case "count":
            print(count());
            break;
          default:
            throw new IllegalArgumentException("not a command: " + line);
        }
      }
    }

    private String call(int millis) {
      CallOptions patient = CallOptions.DEFAULT.withWaitForReady().withDeadlineAfter(millis, TimeUnit.MILLISECONDS);
      try {
        return "ok " + ClientCalls.blockingUnaryCall(channel, UNARY_CALL, patient, "");
      } catch (StatusRuntimeException e) {
        return "failed " + e.getStatus();
      }
    }

    /** Begins one call of the load. */
    private void begin() {
      ClientCalls.asyncUnaryCall(
          channel.newCall(UNARY_CALL, CallOptions.DEFAULT.withDeadlineAfter(10, TimeUnit.SECONDS)),
          "",
          new StreamObserver<String>() {
            @Override
            public void onNext(String name) {
              note(name, null);
            }

            @Override
            public void onError(Throwable why) {
              note(null, Status.fromThrowable(why));
            }

            @Override
            public void onCompleted() {}
          });
    }

    private synchronized void note(String name, Status failure) {
      if (failure == null) {
        answered.merge(name, 1, Integer::sum);
      } else if (failed++ == 0) {
        firstFailure = failure.toString();
      }
    }

    private synchronized String count() {
      var text = new StringBuilder();
      answered.forEach((name, n) -> text.append(name).append('=').append(n).append(' '));
      return text + "failed=" + failed + " " + firstFailure;
    }
  }

  /** A message that has nothing but SimpleResponse.server_id, or nothing at all. */
  private static final class ServerId implements MethodDescriptor.Marshaller<String> {
    private static final int TAG = 4 << 3 | 2;

    @Override
    public InputStream stream(String name) {
      byte[] text = name.getBytes(StandardCharsets.UTF_8);
      if (text.length > 127) {
        throw new IllegalArgumentException("its length takes more than a byte: " + name);
      }
      byte[] message = new byte[text.length == 0 ? 0 : text.length + 2];
      if (text.length > 0) {
        message[0] = TAG;
        message[1] = (byte) text.length;
        System.arraycopy(text, 0, message, 2, text.length);
      }
      return new ByteArrayInputStream(message);
    }

    @Override
    public String parse(InputStream in) {
      try {
        byte[] message = in.readAllBytes();
        if (message.length == 0) {
          return "";
        }
        if (message[0] != TAG || message[1] != message.length - 2) {
          throw new IllegalArgumentException("not only a server_id");
        }
        return new String(message, 2, message.length - 2, StandardCharsets.UTF_8);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }
}
