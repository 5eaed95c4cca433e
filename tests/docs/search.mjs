// Ask the search of the built site: its own script and its own index, in Node instead of a browser.
// Usage: node search.mjs FOLDER_OF_THE_SITE QUESTION... ; prints for each the addresses it finds.
import fs from "fs";
import path from "path";
import vm from "vm";

const [site, ...questions] = process.argv.slice(2);
const folder = path.join(site, "assets/javascripts/workers");
const script = fs.readdirSync(folder).find((name) => /^search\..*\.js$/.test(name));
const [SETUP, QUERY] = [0, 2]; // kinds of messages

// What the script needs of a web worker.
const listeners = [];
const answers = [];
const worker = {
  console,
  URL,
  setTimeout,
  importScripts: () => {},
  location: { href: "http://localhost/" },
  addEventListener: (kind, listener) => kind === "message" && listeners.push(listener),
  postMessage: (answer) => answers.push(answer),
};
worker.self = worker.window = worker.globalThis = worker;
vm.runInContext(fs.readFileSync(path.join(folder, script), "utf8"), vm.createContext(worker));

async function send(type, data) {
  for (const listener of listeners) await listener({ data: { type, data } });
  return answers.pop().data;
}

const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf8"));
await send(SETUP, { ...index, options: { suggest: false } });
for (const question of questions) {
  const { items } = await send(QUERY, question);
  console.log(JSON.stringify(items.map((group) => group[0].location)));
}
