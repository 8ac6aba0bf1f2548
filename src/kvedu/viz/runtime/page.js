/* In a page: mount what is there. The script is deferred, so the page has been read. */
globalThis.kvfig.mountAll();
