package helm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	kubernetes "k8s.io/client-go/kubernetes/scheme"

	"github.com/xds-relay/xds-relay/internal/config"
)

// workload is what runs pods.
type workload struct {
	Kind     string
	Meta     meta.ObjectMeta
	Replicas *int32
	Selector *meta.LabelSelector
	Pod      core.PodTemplateSpec
	Claims   []core.PersistentVolumeClaim
}

// workloads are those of a rendering: one, or none.
func workloads(r rendering) (found []workload) {
	for _, o := range all[*apps.Deployment](r) {
		found = append(found, workload{"Deployment", o.ObjectMeta, o.Spec.Replicas, o.Spec.Selector, o.Spec.Template, nil})
	}
	for _, o := range all[*apps.StatefulSet](r) {
		found = append(found, workload{"StatefulSet", o.ObjectMeta, o.Spec.Replicas, o.Spec.Selector, o.Spec.Template, o.Spec.VolumeClaimTemplates})
	}
	for _, o := range all[*apps.DaemonSet](r) {
		found = append(found, workload{"DaemonSet", o.ObjectMeta, nil, o.Spec.Selector, o.Spec.Template, nil})
	}
	return found
}

// hooks are the pods of `helm test`.
func hooks(r rendering) (pods []*core.Pod) {
	for _, d := range r.Docs {
		if p, ok := d.Object.(*core.Pod); ok && d.Hook {
			pods = append(pods, p)
		}
	}
	return pods
}

// containers are those of a pod, and the init containers.
func containers(pod core.PodSpec) []core.Container {
	return slices.Concat(pod.InitContainers, pod.Containers)
}

// container is the one of a name.
func container(t testing.TB, pod core.PodSpec, name string) core.Container {
	t.Helper()
	i := slices.IndexFunc(containers(pod), func(c core.Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no container %s", name)
	}
	return containers(pod)[i]
}

// relayConfig is the relay's configuration in a rendering, as text and as the relay reads it.
func relayConfig(t testing.TB, r rendering) (text string, c *config.Config) {
	t.Helper()
	for _, m := range all[*core.ConfigMap](r) {
		if text := m.Data["relay.yaml"]; text != "" {
			c, err := config.Parse("relay.yaml", []byte(text), nil)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			return text, c
		}
	}
	t.Fatal("there is no relay.yaml")
	return "", nil
}

// TestFits: in each rendering, what refers to something else finds it, and every pod is locked down.
func TestFits(t *testing.T) {
	for _, name := range cases(t) {
		t.Run(name, func(t *testing.T) {
			r := render(t, values(t, name))
			_, c := relayConfig(t, r)
			for _, w := range workloads(r) {
				t.Run(w.Kind, func(t *testing.T) { fits(t, r, c, w) })
			}
			pods := hooks(r)
			if len(pods) != len(workloads(r)) {
				t.Errorf("%d test pods for %d workloads", len(pods), len(workloads(r)))
			}
			for _, p := range pods {
				lockedDown(t, p.Spec)
				args, address := p.Spec.Containers[0].Args, releaseName+"-headless:"+portOf(t, c.Metrics.Listen)
				if got := args[len(args)-1]; got != address {
					t.Errorf("the test pod asks %s, want %s", got, address)
				}
			}
			if leads := strings.Contains(r.Notes, "http://127.0.0.1:18001/"); leads != (len(workloads(r)) > 0 && c.Admin.Listen != "") {
				t.Errorf("admin.listen is %q, the notes are\n%s", c.Admin.Listen, r.Notes)
			}
			if strings.TrimSpace(r.Notes) == "" || strings.Contains(r.Notes, "<no value>") {
				t.Errorf("the notes are %q", r.Notes)
			}
		})
	}
}

func fits(t *testing.T, r rendering, c *config.Config, w workload) {
	pod := w.Pod.Spec
	lockedDown(t, pod)
	selects := func(what string, selector map[string]string) {
		t.Helper()
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(w.Pod.Labels)) {
			t.Errorf("%s selects %v, pods have %v", what, selector, w.Pod.Labels)
		}
	}
	ports := map[string]int32{}
	for _, one := range containers(pod) {
		for _, p := range one.Ports {
			ports[p.Name] = p.ContainerPort
		}
	}
	hasPort := func(what, port string) {
		t.Helper()
		if ports[port] == 0 {
			t.Errorf("%s names the port %s, there are %v", what, port, ports)
		}
	}
	selects(w.Kind, w.Selector.MatchLabels)
	for _, s := range all[*core.Service](r) {
		selects("Service "+s.Name, s.Spec.Selector)
		for _, p := range s.Spec.Ports {
			hasPort("Service "+s.Name, p.Name)
			if p.TargetPort != intstr.FromString(p.Name) && p.TargetPort != intstr.FromInt32(ports[p.Name]) {
				t.Errorf("Service %s: port %s leads to %v, want %d", s.Name, p.Name, &p.TargetPort, ports[p.Name])
			}
			if s.Spec.ClusterIP == core.ClusterIPNone && p.Port != ports[p.Name] {
				t.Errorf("the headless Service says %d of port %s, which is %d: nothing maps it", p.Port, p.Name, ports[p.Name])
			}
		}
	}
	for _, b := range all[*policy.PodDisruptionBudget](r) {
		selects("PodDisruptionBudget", b.Spec.Selector.MatchLabels)
	}
	for _, m := range all[*monitoring.PodMonitor](r) {
		selects("PodMonitor", m.Spec.Selector.MatchLabels)
		hasPort("PodMonitor", *m.Spec.PodMetricsEndpoints[0].Port)
	}
	for _, n := range all[*networking.NetworkPolicy](r) {
		selects("NetworkPolicy", n.Spec.PodSelector.MatchLabels)
		for _, in := range n.Spec.Ingress {
			for _, p := range in.Ports {
				hasPort("NetworkPolicy", p.Port.StrVal)
			}
		}
	}
	for _, s := range pod.TopologySpreadConstraints {
		selects("a spread constraint", s.LabelSelector.MatchLabels)
	}
	for _, h := range all[*autoscaling.HorizontalPodAutoscaler](r) {
		if h.Spec.ScaleTargetRef.Kind != w.Kind || h.Spec.ScaleTargetRef.Name != w.Meta.Name || w.Replicas != nil {
			t.Errorf("the autoscaler is for %v, of %s %s with %v replicas", h.Spec.ScaleTargetRef, w.Kind, w.Meta.Name, w.Replicas)
		}
	}
	account := "default"
	for _, s := range all[*core.ServiceAccount](r) {
		account = s.Name
	}
	if pod.ServiceAccountName != account {
		t.Errorf("pods run as %s, the account is %s", pod.ServiceAccountName, account)
	}
	volumesFit(t, r, w)

	relay := container(t, pod, "xds-relay")
	probed := func(probe *core.Probe, path string) {
		t.Helper()
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != "metrics" {
			t.Errorf("the probe of %s is %v", path, probe)
		}
	}
	probed(relay.LivenessProbe, "/livez")
	if relay.RestartPolicy == nil {
		probed(relay.StartupProbe, "/livez")
		probed(relay.ReadinessProbe, "/readyz")
	} else {
		probed(relay.StartupProbe, "/startupz")
		if relay.ReadinessProbe != nil {
			t.Error("a sidecar that is not ready takes traffic from its Envoy")
		}
	}
	if want := fmt.Sprintf(":%d", ports["metrics"]); !strings.HasSuffix(c.Metrics.Listen, want) {
		t.Errorf("metrics.listen is %s, the port is %s", c.Metrics.Listen, want)
	}
	if at := c.Downstream.Listen[0]; ports["xds"] != 0 && !strings.HasSuffix(at, fmt.Sprintf(":%d", ports["xds"])) {
		t.Errorf("downstream.listen is %s, the port is %d", at, ports["xds"])
	}
	drain := c.Downstream.DrainDelay + c.Downstream.Drain
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	if grace < drain+15*time.Second || len(pod.InitContainers) == 0 && grace > drain+17*time.Second {
		t.Errorf("the grace period is %v, the relay drains for %v", grace, drain)
	}
	memory := ""
	for _, e := range relay.Env {
		if e.Name == "GOMEMLIMIT" {
			memory = e.Value
		}
	}
	want := ""
	if limit := relay.Resources.Limits.Memory().Value(); limit > 0 {
		want = fmt.Sprintf("%dMiB", limit*9/10>>20)
	}
	if memory != want {
		t.Errorf("GOMEMLIMIT is %q, want %q", memory, want)
	}
}

// volumesFit: each volume is mounted somewhere, each mount has a volume, and a ConfigMap of the release has what is
// taken from it. Nothing is mounted by subPath, which would never change.
func volumesFit(t *testing.T, r rendering, w workload) {
	t.Helper()
	keys := map[string]map[string]string{}
	for _, m := range all[*core.ConfigMap](r) {
		keys[m.Name] = m.Data
	}
	mounted := map[string]bool{}
	for _, one := range containers(w.Pod.Spec) {
		for _, m := range one.VolumeMounts {
			mounted[m.Name] = true
			if m.SubPath != "" {
				t.Errorf("%s is mounted by subPath", m.Name)
			}
		}
	}
	for _, c := range w.Claims {
		if !mounted[c.Name] {
			t.Errorf("claim %s is mounted nowhere", c.Name)
		}
		delete(mounted, c.Name)
	}
	for _, v := range w.Pod.Spec.Volumes {
		if !mounted[v.Name] {
			t.Errorf("volume %s is mounted nowhere", v.Name)
		}
		delete(mounted, v.Name)
		if v.ConfigMap != nil && keys[v.ConfigMap.Name] == nil {
			t.Errorf("there is no ConfigMap %s", v.ConfigMap.Name)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			for _, item := range s.ConfigMap.Items {
				if keys[s.ConfigMap.Name][item.Key] == "" {
					t.Errorf("ConfigMap %s has no %s", s.ConfigMap.Name, item.Key)
				}
			}
		}
	}
	for name := range mounted {
		t.Errorf("there is no volume %s", name)
	}
}

// lockedDown: what the strictest level of Kubernetes' Pod Security Standards asks for, and a root that is read only, and
// no token.
func lockedDown(t *testing.T, pod core.PodSpec) {
	t.Helper()
	s := pod.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod's security context is %v", s)
	}
	if a := pod.AutomountServiceAccountToken; a == nil || *a {
		t.Error("the pod has a token")
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("the pod shares namespaces with its host")
	}
	for _, c := range containers(pod) {
		s := c.SecurityContext
		if s == nil || *s.RunAsUser != 65532 || *s.RunAsGroup != 65532 || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
			!slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
			t.Errorf("the security context of %s is %v", c.Name, s)
		}
	}
}

// TestModes: what is different from one to the other.
func TestModes(t *testing.T) {
	t.Run("deployment", func(t *testing.T) {
		r := render(t, values(t, "deployment"))
		d := one[*apps.Deployment](t, r)
		u := d.Spec.Strategy.RollingUpdate
		if *d.Spec.Replicas != 3 || u.MaxSurge.StrVal != "25%" || u.MaxUnavailable.IntVal != 0 || u.MaxUnavailable.StrVal != "" {
			t.Errorf("%d replicas, %v", *d.Spec.Replicas, u)
		}
		if b := one[*policy.PodDisruptionBudget](t, r); b.Spec.MaxUnavailable.IntVal != 1 || *b.Spec.UnhealthyPodEvictionPolicy != policy.AlwaysAllow {
			t.Errorf("the budget is %v", b.Spec)
		}
		if n := len(d.Spec.Template.Spec.TopologySpreadConstraints); n != 2 {
			t.Errorf("%d spread constraints", n)
		}
		if _, c := relayConfig(t, r); c.Downstream.MaxConnectionAge == 0 || c.Cache.Snapshot.Dir == "" || c.Downstream.TLS.ClientCA == "" {
			t.Errorf("age %v, snapshot %q, client_ca %q", c.Downstream.MaxConnectionAge, c.Cache.Snapshot.Dir, c.Downstream.TLS.ClientCA)
		}
	})
	t.Run("one replica", func(t *testing.T) {
		r := render(t, values(t, "plain"))
		if b := all[*policy.PodDisruptionBudget](r); len(b) > 0 {
			t.Error("a budget for one replica keeps its node from being drained")
		}
		if _, c := relayConfig(t, r); c.Cache.Snapshot.Dir != "" {
			t.Error("there is a snapshot although it is off")
		}
	})
	t.Run("daemonset", func(t *testing.T) {
		r := render(t, values(t, "daemonset"))
		u := one[*apps.DaemonSet](t, r).Spec.UpdateStrategy.RollingUpdate
		if u.MaxSurge.StrVal != "25%" || u.MaxUnavailable.IntVal != 0 {
			t.Errorf("updates %v", u)
		}
		for _, s := range all[*core.Service](r) {
			if local := s.Spec.InternalTrafficPolicy; s.Spec.ClusterIP != core.ClusterIPNone && (local == nil || *local != core.ServiceInternalTrafficPolicyLocal) {
				t.Errorf("Service %s goes to other nodes", s.Name)
			}
		}
		if b := all[*policy.PodDisruptionBudget](r); len(b) > 0 {
			t.Error("a budget of a DaemonSet")
		}
	})
	t.Run("sidecar", func(t *testing.T) {
		r := render(t, values(t, "sidecar"))
		pod := one[*apps.Deployment](t, r).Spec.Template.Spec
		relay := pod.InitContainers[0]
		if relay.Name != "xds-relay" || relay.RestartPolicy == nil || *relay.RestartPolicy != core.ContainerRestartPolicyAlways || relay.StartupProbe == nil {
			t.Errorf("the relay is no native sidecar: %v", relay)
		}
		_, c := relayConfig(t, r)
		socket := c.Downstream.Listen[0]
		for _, one := range []core.Container{relay, container(t, pod, "envoy")} {
			if !slices.ContainsFunc(one.VolumeMounts, func(m core.VolumeMount) bool {
				return m.Name == "xds-relay-socket" && strings.HasPrefix(socket, "unix://"+m.MountPath+"/")
			}) {
				t.Errorf("%s does not have the directory of %s", one.Name, socket)
			}
		}
		if c.Groups.Profile != config.ProfileSidecar {
			t.Errorf("the profile is %s", c.Groups.Profile)
		}
	})
	t.Run("pods of your own", func(t *testing.T) {
		r := render(t, values(t, "pods-of-your-own"))
		if len(workloads(r)) != 0 || len(all[*core.Service](r)) != 0 || len(all[*core.ConfigMap](r)) != 2 {
			t.Errorf("there is more than two ConfigMaps and the PodMonitor: %d documents", len(r.Docs))
		}
	})
	t.Run("all", func(t *testing.T) {
		r := render(t, values(t, "all"))
		s := one[*apps.StatefulSet](t, r)
		headless := slices.IndexFunc(all[*core.Service](r), func(o *core.Service) bool {
			return o.Name == s.Spec.ServiceName && o.Spec.ClusterIP == core.ClusterIPNone
		})
		if headless < 0 {
			t.Errorf("there is no headless Service %s", s.Spec.ServiceName)
		}
		h := one[*autoscaling.HorizontalPodAutoscaler](t, r)
		if *h.Spec.Behavior.ScaleDown.StabilizationWindowSeconds != 600 || len(h.Spec.Metrics) != 2 || h.Spec.Metrics[1].Pods.Metric.Name != "xds_relay_clients" {
			t.Errorf("the autoscaler is %v", h.Spec)
		}
		if got := len(one[*monitoring.PrometheusRule](t, r).Spec.Groups[0].Rules); got < 20 {
			t.Errorf("%d alerts", got)
		}
		boards := 0
		for _, m := range all[*core.ConfigMap](r) {
			if m.Labels["grafana_dashboard"] == "1" {
				boards++
			}
		}
		if boards != 4 {
			t.Errorf("%d dashboards", boards)
		}
		egress := map[string]bool{}
		for _, e := range one[*networking.NetworkPolicy](t, r).Spec.Egress {
			for _, p := range e.Ports {
				is := core.ProtocolTCP
				if p.Protocol != nil {
					is = *p.Protocol
				}
				egress[fmt.Sprintf("%s/%s", p.Port, is)] = true
			}
		}
		for _, port := range []string{"53/UDP", "53/TCP", "18000/TCP", "18010/TCP", "4317/TCP"} {
			if !egress[port] {
				t.Errorf("pods may not reach port %s: %v", port, egress)
			}
		}
		reached := 0
		for _, o := range all[*core.Service](r) {
			for _, p := range o.Spec.Ports {
				if p.Name == "rest" && p.Port == 18003 {
					reached++
				}
			}
		}
		if in := one[*networking.NetworkPolicy](t, r).Spec.Ingress[0].Ports; reached != 2 || len(in) != 2 {
			t.Errorf("%d Services have the port where clients poll, and clients may reach %v", reached, in)
		}
		// What config says goes before what the chart would, zero values too; large numbers stay numbers.
		_, c := relayConfig(t, r)
		if c.Admin.Listen != "" || c.Downstream.MaxConnectionAge != 0 || c.Downstream.MaxNames != 20_000_000 || c.Authz.RulesFile == "" {
			t.Errorf("admin %q, age %v, names %d, rules %q", c.Admin.Listen, c.Downstream.MaxConnectionAge, c.Downstream.MaxNames, c.Authz.RulesFile)
		}
	})
}

// cluster has one object.
type cluster struct{ has runtime.Object }

func (c cluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	kinds := schema.FromAPIVersionAndKind(apiVersion, kind)
	of, _ := apimeta.UnsafeGuessKindToResource(kinds)
	return fake.NewSimpleDynamicClient(kubernetes.Scheme, c.has).Resource(of), true, nil
}

// TestAutoscaled: an upgrade leaves as many replicas as the autoscaler made, and does not begin with one.
func TestAutoscaled(t *testing.T) {
	six := int32(6)
	has := &apps.Deployment{ObjectMeta: meta.ObjectMeta{Name: releaseName, Namespace: namespace}, Spec: apps.DeploymentSpec{Replicas: &six}}
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	for over, want := range map[string]int32{"autoscaling: {enabled: true}": 6, "{}": 3} {
		top, err := chartutil.ToRenderValues(chart, values(t, "deployment", over), chartutil.ReleaseOptions{Name: releaseName, Namespace: namespace, IsUpgrade: true}, capabilities())
		if err != nil {
			t.Fatal(err)
		}
		files, err := engine.RenderWithClientProvider(chart, top, cluster{has})
		if err != nil {
			t.Fatal(err)
		}
		d := decoded(t, files[chart.Name()+"/templates/tier.yaml"]).(*apps.Deployment)
		if d.Spec.Replicas == nil || *d.Spec.Replicas != want {
			t.Errorf("%s: there are %v replicas, want %d", over, d.Spec.Replicas, want)
		}
	}
}

// TestRestarts: pods are replaced when a key changes that needs it, and only then.
func TestRestarts(t *testing.T) {
	sum := func(over string) string {
		return workloads(render(t, values(t, "deployment", over)))[0].Pod.Annotations["xds-relay/restart-checksum"]
	}
	before := sum("{}")
	for over, replaced := range map[string]bool{
		"config: {log: {level: debug}}":                                   false,
		"config: {upstream: {address: 'dns:///other.default.svc:18000'}}": false,
		"config: {downstream: {drain: 45s}}":                              false, // but the grace period changes
		"policy: {rules: [{identity: anonymous, read: []}]}":              false, // but the volume changes
		"config: {downstream: {max_connection_age: 45m}}":                 true,
		"config: {groups: {key: [cluster]}}":                              true,
		"config: {types: [{type_url: LDS, secret: true}]}":                true,
	} {
		if got := sum(over) != before; got != replaced {
			t.Errorf("%s: replaced %t, want %t", over, got, replaced)
		}
	}
}

// TestRefusals: values that cannot work are refused before anything is installed, in words that help.
func TestRefusals(t *testing.T) {
	for over, says := range map[string]string{
		"mode: replicaset":                                     "'deployment', 'daemonset', 'sidecar'",
		"replica: 2":                                           "'replica' not allowed",
		"config: {upstream: {target: a}}":                      "'target' not allowed",
		"config: {timers: {dne_timeout: soon}}":                "/config/timers/dne_timeout",
		"config: {upstream: {address: ''}}":                    "config.upstream.address: name the control plane",
		"tls: {upstream: {secretName: ''}}":                    "tls.upstream.secretName: name a Secret",
		"tls: {downstream: {secretName: ''}}":                  "tls.downstream.secretName: name a Secret",
		"config: {metrics: {listen: '127.0.0.1:1'}}":           "config.metrics.listen: the kubelet's probes",
		"resources: {limits: {memory: 1 GiB}}":                 "resources.limits.memory: 1 GiB",
		"policy: {rules: [{identity: a}], configMapName: b}":   "policy: give either",
		"config: {downstream: {drain: '${env:DRAIN}'}}":        "invalid duration",
		"image: {digest: 'sha256:0'}":                          "/image/digest",
		"config: {upstream: {address: 'a:1', tls: {ca: [1]}}}": "/config/upstream/tls/ca",
	} {
		_, err := templated(chartDir, values(t, "deployment", over))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", over, err, says)
		}
	}
}

// TestDependency: a chart of somebody's own Envoys has this one as a dependency, and includes the sidecar.
func TestDependency(t *testing.T) {
	r := renderDir(t, "testdata/web", map[string]any{})
	_, c := relayConfig(t, r)
	w := workloads(r)
	if len(w) != 1 || len(w[0].Pod.Spec.InitContainers) != 1 {
		t.Fatalf("there are %d workloads", len(w))
	}
	fits(t, r, c, w[0])
}
