// The control plane that Knell's integration tests run against: three programs of Kubernetes in one binary, because
// they share nearly all of their code. The first argument says which one it is to be.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	if len(os.Args) > 1 {
		if command, known := programs[os.Args[1]]; known {
			// Each program reads os.Args itself (kubectl looks for its plugins there), so it must see its own.
			os.Args = os.Args[1:]
			os.Exit(cli.Run(command()))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: kube kube-apiserver|kube-controller-manager|kubectl [arguments]")
	os.Exit(2)
}
