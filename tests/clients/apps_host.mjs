// The page of a host of MCP Apps, around the bridge of the extension's own SDK: it lets the server's tool be
// called, shows the app in a sandbox of another origin, and passes on what both say.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { AppBridge, PostMessageTransport, RESOURCE_MIME_TYPE, getToolUiResourceUri } from "@modelcontextprotocol/ext-apps/app-bridge";

const ABOUT = { name: "host", version: "0" };
const EXTENSIONS = { "io.modelcontextprotocol/ui": { mimeTypes: [RESOURCE_MIME_TYPE] } };
let client, bridge, frame;
const said = (window.said = { calls: [], links: [], sizes: 0 });

window.connect = async (mode) => {
  const options = { capabilities: { extensions: EXTENSIONS } };
  if (mode !== "legacy") options.versionNegotiation = { mode: { pin: mode } };
  client = new Client(ABOUT, options);
  await client.connect(new StreamableHTTPClientTransport(new URL("/mcp", location.href)));
  return (await client.listTools()).tools;
};

// `answers` are given in place of the server's, by tool. `weaken` names an origin: then the page is as a careless
// author would have written it, and the host lets that origin in. It is the control of the attacks.
window.openApp = async ({ tool, sandbox, theme, weaken, answers = {} }) => {
  const uri = getToolUiResourceUri(tool);
  const [content] = (await client.readResource({ uri })).contents;
  const csp = weaken ? { resourceDomains: [weaken], connectDomains: [weaken], frameDomains: [weaken] } : content._meta.ui.csp;
  let html = content.text;
  if (weaken) {
    html = html.replace(/<meta http-equiv[^>]*>/, "").replace("element.textContent = text", "element.innerHTML = text");
  }
  frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
  frame.style = "width: 100%; height: 600px; border: 0";
  const ready = new Promise((resolve) => addEventListener("message", (event) => {
    if (event.source === frame.contentWindow && event.data?.method === "ui/notifications/sandbox-proxy-ready") resolve();
  }));
  frame.src = sandbox + "?csp=" + encodeURIComponent(JSON.stringify(csp));
  document.body.replaceChildren(frame);
  await ready;
  bridge = new AppBridge(null, ABOUT, { openLinks: {}, serverTools: {} }, { hostContext: { theme } });
  bridge.onopenlink = async ({ url }) => (said.links.push(url), {});
  bridge.oncalltool = async (params) => {
    said.calls.push([params.name, params.arguments]);
    return answers[params.name] ?? client.callTool(params);
  };
  bridge.onsizechange = ({ height }) => { said.sizes++; frame.style.height = height + "px"; };
  const initialized = new Promise((resolve) => { bridge.oninitialized = resolve; });
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  await bridge.sendSandboxResourceReady({ html, csp });
  await initialized;
};

window.search = async (name, given) => {
  await bridge.sendToolInput({ arguments: given });
  const result = await client.callTool({ name, arguments: given });
  await bridge.sendToolResult(result);
  return result;
};
window.give = (given, result) => bridge.sendToolInput({ arguments: given }).then(() => bridge.sendToolResult(result));
window.theme = (theme) => bridge.setHostContext({ theme });
window.teardown = () => bridge.teardownResource({});
window.forge = (message, depth) => {
  let target = frame.contentWindow;
  for (let at = 0; at < depth; at++) target = target.frames[0];
  target.postMessage(message, "*");
};
