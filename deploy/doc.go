// Package deploy holds what it takes to run the relay elsewhere than on a
// developer's machine: the container image, packages with a systemd unit, a Helm chart and manifests, alerts,
// dashboards, and ready-made examples, each checked by a test that loads it as its reader would; packages by
// internal/release, which makes them, chart and manifests by internal/test/e2e/helm, alerts and dashboards by
// internal/admin and internal/test/e2e/alerts.
//
// It never holds code of the product; the quickstart's control plane is a sample, and
// internal/test/e2e/envoy runs the examples. Limitation: the chart's plain manifests are for one kind of tier each.
package deploy
