// What a client of an official SDK gets from the desk, as one JSON object on standard output.
import { writeFileSync } from 'node:fs';

// {transport: 'stdio' | 'http' | 'sse', mode, command, args, url, headers}
export const wanted = JSON.parse(process.argv[2]);

export async function ask(client, transport, isMissing) {
  await client.connect(transport);
  const call = (name, given) => client.callTool({ name, arguments: given }).then(withoutMeta);
  const { tools } = await client.listTools(); // first: replies are checked against the schemas in it
  const found = await call('search', { query: 'pendulum', limit: 2 });
  const { results: [first], collection = first.collection } = found.structuredContent;
  const { id } = first;
  const uri = `refdesk://${collection}/${id}`;
  const missing = await client.readResource({ uri: `${uri}999` }).catch((error) => error);
  const said = {
    version: client.getNegotiatedProtocolVersion?.(), // the first SDK doesn't tell
    server: client.getServerVersion(),
    instructions: client.getInstructions(),
    capabilities: client.getServerCapabilities(),
    tools,
    found,
    opened: await call('get_source', { id, around: 1 }),
    refused: await call('search', {}),
    contents: (await client.readResource({ uri })).contents,
    missing: { known: isMissing(missing), data: missing.data },
    resources: await everyPage(client),
    completion: await completed(client, 'no'),
    prompt: (await client.getPrompt({ name: 'answer', arguments: { question: 'Why?' } })).messages,
  };
  await client.close();
  writeFileSync(1, JSON.stringify(said));
}

function withoutMeta({ content, structuredContent, isError }) {
  return { content, structuredContent, isError };
}

async function everyPage(client) {
  const resources = [];
  let cursor;
  do {
    const page = await client.listResources(cursor && { cursor }); // the second SDK turns the pages itself
    resources.push(...page.resources);
    cursor = page.nextCursor;
  } while (cursor);
  return resources;
}

async function completed(client, value) {
  const [{ uriTemplate }] = (await client.listResourceTemplates()).resourceTemplates;
  const ref = { type: 'ref/resource', uri: uriTemplate };
  return (await client.complete({ ref, argument: { name: 'collection', value } })).completion;
}
