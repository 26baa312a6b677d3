// How a host starts a bundle, by the library that hosts load bundles with: manifest, folder, what the user gave.
import { getMcpConfigForManifest } from "@anthropic-ai/mcpb/node";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const [folder, given] = process.argv.slice(2);
const config = await getMcpConfigForManifest({
  manifest: JSON.parse(readFileSync(join(folder, "manifest.json"), "utf8")),
  extensionPath: folder,
  systemDirs: {},
  userConfig: JSON.parse(given),
  pathSeparator: "/",
});
console.log(JSON.stringify(config ?? null));
