// Shows the app of a server in a browser without a window, as a host does, and prints what could be seen.
// Arguments: the browser, the server's URL, and a JSON file that says what to do.
import { build } from "esbuild";
import { readFileSync } from "node:fs";
import http from "node:http";
import puppeteer from "puppeteer-core";

const [browserPath, server, planFile] = process.argv.slice(2);
const plan = JSON.parse(readFileSync(planFile));
const bundled = await build({ entryPoints: ["apps_host.mjs"], bundle: true, format: "iife", write: false });
const script = bundled.outputFiles[0].text;

// The policy that the specification asks hosts for, of what the resource declares.
function policy(csp) {
  const from = (domains) => (domains ?? []).join(" ");
  return [
    "default-src 'none'", `script-src 'self' 'unsafe-inline' ${from(csp.resourceDomains)}`,
    `style-src 'self' 'unsafe-inline' ${from(csp.resourceDomains)}`, `connect-src 'self' ${from(csp.connectDomains)}`,
    `img-src 'self' data: ${from(csp.resourceDomains)}`, "object-src 'none'",
    `frame-src ${from(csp.frameDomains) || "'none'"}`, `base-uri ${from(csp.baseUriDomains) || "'self'"}`,
  ].join("; ");
}

// The proxy of the sandbox: another origin, which passes messages on between the host and the app.
const SANDBOX = `<!doctype html><body style="margin:0"><script>
  const inner = document.createElement("iframe");
  inner.style = "width:100%;height:100vh;border:0;display:block";
  inner.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
  document.body.append(inner);
  addEventListener("message", (event) => {
    if (event.source === inner.contentWindow) return parent.postMessage(event.data, "*");
    if (event.source !== parent) return;
    if (event.data.method !== "ui/notifications/sandbox-resource-ready") return inner.contentWindow.postMessage(event.data, "*");
    inner.contentDocument.open();
    inner.contentDocument.write(event.data.params.html);
    inner.contentDocument.close();
  });
  parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} }, "*");
</script>`;

function html(response, body, headers = {}) {
  response.writeHead(200, { "Content-Type": "text/html; charset=utf-8", ...headers }).end(body);
}

function passOn(request, response) {
  const { host, origin, referer, connection, ...headers } = request.headers;
  if (plan.key) headers.authorization = `Bearer ${plan.key}`;
  const passed = http.request(server, { method: request.method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  request.pipe(passed);
}

const listening = (handler) => new Promise((resolve) => {
  const made = http.createServer(handler).listen(0, "127.0.0.1", () => resolve([made, made.address().port]));
});
const evil = [];
// It answers without content: then a frame that is sent here stays what it is, and can be looked at meanwhile.
const [stranger, strangerPort] = await listening((request, response) => {
  evil.push(request.url);
  response.writeHead(204).end();
});
const [host, hostPort] = await listening((request, response) => {
  if (request.url === "/mcp") return passOn(request, response);
  if (request.url === "/host.js") return response.writeHead(200, { "Content-Type": "text/javascript" }).end(script);
  html(response, '<!doctype html><meta charset="utf-8"><body><script src="/host.js"></script>');
});
const [proxy, proxyPort] = await listening((request, response) => {
  const given = new URL(request.url, "http://sandbox").searchParams.get("csp");
  html(response, SANDBOX, { "Content-Security-Policy": policy(JSON.parse(given ?? "{}")) });
});
const sandbox = `http://localhost:${proxyPort}/`;

const browser = await puppeteer.launch({
  executablePath: browserPath, args: ["--no-sandbox", "--disable-dev-shm-usage"], protocolTimeout: 60000,
});
const report = { steps: [] };
const filled = (value) => JSON.parse(JSON.stringify(value).replaceAll("STRANGER", `127.0.0.1:${strangerPort}`));
for (const run of plan.runs) {
  const page = await browser.newPage();
  const seen = { dialogs: [], requests: [], errors: [], said: [] };
  page.on("dialog", (dialog) => (seen.dialogs.push(dialog.message()), dialog.dismiss()));
  page.on("popup", () => seen.dialogs.push("a new window"));
  page.on("console", (message) => seen.said.push(message.text().slice(0, 200)));
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("request", (request) => {
    const url = new URL(request.url());
    const ours = [`127.0.0.1:${hostPort}`, `localhost:${proxyPort}`].includes(url.host);
    if (!ours && !["data:", "about:", "blob:"].includes(url.protocol)) seen.requests.push(request.url());
  });
  await page.setViewport({ width: run.width ?? 800, height: run.height ?? 900 });
  await page.goto(`http://127.0.0.1:${hostPort}/`);
  const tools = await page.evaluate((mode) => window.connect(mode), run.mode ?? "legacy");
  const tool = tools.find((one) => one.name === (run.tool ?? "search"));
  const { theme = "light", weaken, answers, steps } = filled(run);
  await page.evaluate((given) => window.openApp(given), { tool, sandbox, theme, weaken, answers });
  const view = page.frames().find((frame) => frame.parentFrame()?.parentFrame());
  const done = { tools: tools.map((one) => one.name) };
  for (const [what, given, more] of steps) try {
    if (what === "search") done.result = await page.evaluate((name, asked) => window.search(name, asked), tool.name, given);
    if (what === "give") await page.evaluate((asked, result) => window.give(asked, result), { query: given }, more);
    if (what === "press") {
      await view.evaluate((text) => [...document.querySelectorAll("button")].find((one) => one.innerText.includes(text)).focus(), given);
      await page.keyboard.press("Enter");
    }
    if (what === "key") await page.keyboard.press(given);
    if (what === "focus") await view.focus(given);
    if (what === "theme") await page.evaluate((theme) => window.theme(theme), given);
    if (what === "forge") await page.evaluate((message, depth) => window.forge(message, depth), given, more);
    if (what === "teardown") done.teardown = await page.evaluate(() => window.teardown());
    if (what === "wait") await view.waitForSelector(given, { timeout: 5000 });
    if (what === "rest") await new Promise((resolve) => setTimeout(resolve, given));
    if (what === "shot") await page.screenshot({ path: given, fullPage: false });
    if (what === "ask") done[more] = await view.evaluate(given);
  } catch (error) {
    seen.errors.push(`${what} ${JSON.stringify(given).slice(0, 99)}: ${error.message}`);
  }
  done.said = await page.evaluate(() => window.said);
  done.text = await view.evaluate(() => document.body.innerText);
  done.tags = await view.evaluate(() => [...new Set([...document.querySelectorAll("*")].map((one) => one.localName))].sort());
  done.attributes = await view.evaluate(() => [...new Set([...document.querySelectorAll("body *")].flatMap((one) => one.getAttributeNames()))].sort());
  done.pwned = await view.evaluate(() => Boolean(window.pwned));
  report.steps.push({ ...seen, ...done, evil: evil.splice(0) });
  await page.close();
}
await browser.close();
for (const one of [stranger, host, proxy]) one.close(), one.closeAllConnections();
console.log(JSON.stringify(report));
