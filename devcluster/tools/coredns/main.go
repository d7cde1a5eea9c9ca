// Command coredns is CoreDNS with the plugins that cluster DNS of one throwaway node needs, and none of the cloud ones.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

// Each query runs through the plugins in this order.
var order = []string{"bind", "ready", "errors", "cache", "kubernetes"}

func main() {
	dnsserver.Directives = order
	coremain.Run()
}
