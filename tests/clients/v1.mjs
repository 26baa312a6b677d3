// The official TypeScript SDK, version 1: always with the handshake.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ErrorCode, McpError } from '@modelcontextprotocol/sdk/types.js';
import { ask, wanted } from './ask.mjs';

const { command, args, url, headers } = wanted;
const transports = {
  stdio: () => new StdioClientTransport({ command, args }),
  http: () => new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }),
  sse: () => new SSEClientTransport(new URL(url), { requestInit: { headers } }),
};
const isMissing = (error) => error instanceof McpError && error.code === ErrorCode.InvalidParams;
await ask(new Client({ name: 'v1', version: '0' }), transports[wanted.transport](), isMissing);
