// render prints the manifests of a Helm chart, where there is no helm: render CHART NAMESPACE. With Debian's packages
// golang-go, golang-github-masterminds-sprig-dev and golang-gopkg-yaml.v3-dev, by GOPATH=/usr/share/gocode GO111MODULE=off.
package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

func main() {
	chart, namespace := os.Args[1], os.Args[2]
	values := map[string]interface{}{"Values": read(chart, "values.yaml"), "Chart": map[string]interface{}{}}
	for key, value := range read(chart, "Chart.yaml") {
		values["Chart"].(map[string]interface{})[strings.ToUpper(key[:1])+key[1:]] = value
	}
	values["Release"] = map[string]interface{}{"Name": "test", "Namespace": namespace, "Service": "Helm"}

	all := template.New("chart").Option("missingkey=zero").Funcs(sprig.TxtFuncMap())
	all.Funcs(template.FuncMap{
		"toYaml": func(value interface{}) (string, error) {
			text, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"include": func(name string, data interface{}) (string, error) {
			var text bytes.Buffer
			err := all.ExecuteTemplate(&text, name, data)
			return text.String(), err
		},
	})
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	check(err)
	template.Must(all.ParseFiles(files...))
	for _, file := range files {
		if strings.HasSuffix(file, ".yaml") {
			os.Stdout.WriteString("---\n")
			check(all.ExecuteTemplate(os.Stdout, filepath.Base(file), values))
		}
	}
}

func read(chart string, name string) map[string]interface{} {
	text, err := os.ReadFile(filepath.Join(chart, name))
	check(err)
	var content map[string]interface{}
	check(yaml.Unmarshal(text, &content))
	return content
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
