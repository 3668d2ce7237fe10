/* The course's home as a tab of JupyterLab, which cells of lessons have run, and pictures.
 *
 * An extension without a build step: JupyterLab loads this file, calls `init` with the modules
 * that all extensions share, and asks `get` for the plugin.
 * https://jupyterlab.readthedocs.io/en/stable/extension/extension_dev.html
 */
(() => {
  const folder = document.currentScript.src.replace(/[^/]*$/, '');
  const LOOK_AGAIN_MS = 2000;
  const GATHER_MS = 800;
  const MAX_KERNEL_WAIT_MS = 60000;
  let shared;

  const load = async name => (await Object.values(shared[name])[0].get())();

  /** Ask the server; `content` is sent as JSON. */
  async function ask(services, path, content) {
    const settings = services.ServerConnection.makeSettings();
    const request = content ? { method: 'POST', body: JSON.stringify(content) } : {};
    const url = settings.baseUrl + path;
    return services.ServerConnection.makeRequest(url, request, settings);
  }

  /** Take over from `page` what has changed as one went on; focus and place stay. */
  function refresh(node, page) {
    const fresh = document.createElement('div');
    fresh.innerHTML = page;
    for (const now of fresh.querySelectorAll('[data-live], [data-live-class]')) {
      const old = node.querySelector('#' + now.id);
      if (!old) return false;
      for (const { name, value } of now.attributes) {
        if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      }
      const differs = now.hasAttribute('data-live') && old.innerHTML !== now.innerHTML;
      if (differs) old.innerHTML = now.innerHTML;
    }
    return true;
  }

  /** How far off all guesses were, which the lessons' pieces keep in this browser. */
  function showGuesses(node) {
    const place = node.querySelector('#dl-guesses');
    let all = [];
    try {
      const kept = JSON.parse(localStorage.getItem('distlab-guesses')) ?? {};
      all = Object.values(kept).flatMap(lesson => Object.values(lesson));
    } catch { /* damaged, or none may be kept */ }
    if (!place || all.length < 2 || place.dataset.count === String(all.length)) return;
    const near = all.filter(one => one.off <= 0.1).length;
    place.hidden = false;
    place.dataset.count = all.length;
    const dots = all.map(({ off }) => `<i style="left: ${Math.round(100 * Number(off))}%"></i>`);
    place.innerHTML = `<p>Your ${all.length} guesses, ${near} of them close</p>` +
      `<div class="dl-strip" aria-hidden="true">${dots.join('')}</div>` +
      '<div class="dl-ends" aria-hidden="true"><span>exactly right</span><span>far off</span></div>';
  }

  /** The tab. It asks for its page when it is shown, and every two seconds while it is. */
  function makeHome({ Widget }, services, commands) {
    let seen = '';
    const home = new Widget();
    home.id = 'distlab-home';
    home.title.label = 'Home';
    home.title.caption = 'The course, and how far you are';
    home.title.closable = true;
    home.node.setAttribute('aria-label', 'Course home');

    async function look() {
      showGuesses(home.node);
      const answer = await ask(services, 'distlab/home?seen=' + seen).catch(() => null);
      if (!answer || answer.status !== 200) return;
      const { mark, page } = await answer.json();
      if (!seen || !refresh(home.node, page)) home.node.innerHTML = page;
      showGuesses(home.node);
      seen = mark;
    }

    home.node.addEventListener('click', event => {
      const link = event.target.closest('a[data-path]');
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const path = link.dataset.path;
      const factory = path.endsWith('.md') ? 'Markdown Preview' : undefined;
      commands.execute('docmanager:open', { path, factory });
    });
    const timer = setInterval(() => {
      if (home.isVisible && !document.hidden) look();
    }, LOOK_AGAIN_MS);
    home.disposed.connect(() => clearInterval(timer));
    home.onAfterShow = look;
    home.node.tabIndex = -1;  // JupyterLab's current tab is the one with the focus
    home.onActivateRequest = () => home.node.focus();
    look();
    return home;
  }

  /** Tell the server which cells of lessons have run, a few at a time. */
  function tellWhatRan({ NotebookActions }, tracker, services) {
    const waiting = new Map();
    let timer = 0;

    function send() {
      timer = 0;
      for (const [path, cells] of waiting) {
        ask(services, 'distlab/ran', { path, cells: [...cells] }).catch(() => undefined);
      }
      waiting.clear();
    }

    NotebookActions.executed.connect((_, { notebook, cell, success }) => {
      const panel = tracker.find(one => one.content === notebook);
      const meant = (cell.model.getMetadata('tags') || []).includes('raises-exception');
      const ran = cell.model.type === 'code' && cell.model.executionCount !== null;
      if (!panel || !ran || !(success || meant)) return;
      const path = panel.context.path;
      if (!/^(notebooks|work)\//.test(path)) return;
      waiting.set(path, (waiting.get(path) || new Set()).add(cell.model.id));
      timer = timer || setTimeout(send, GATHER_MS);
    });
  }

  /** Open the learner's copy of a lesson or lab wherever the original is asked for. */
  function openCopies(manager) {
    const copy = path => path.replace(/^(notebooks|labs)\/([^/]+\.ipynb)$/, 'work/$2');
    for (const name of ['open', 'openOrReveal', 'findWidget']) {
      const plain = manager[name].bind(manager);
      manager[name] = (path, ...rest) => plain(copy(path), ...rest);
    }
  }

  /** A button that puts the original back, and says so when there is a newer one. */
  function makeStartOver({ Dialog, showDialog }, tracker, services, { commands, shell }) {
    const button = document.createElement('button');
    button.className = 'dl-top dl-over';
    button.hidden = true;

    async function look() {
      const shown = shell.currentWidget;
      const path = shown && tracker.has(shown) ? shown.context.path : '';
      button.hidden = !/^work\/[^/]+\.ipynb$/.test(path);
      if (button.hidden) return;
      const query = 'distlab/copy?path=' + encodeURIComponent(path);
      const answer = await ask(services, query).catch(() => null);
      const newer = answer?.status === 200 && (await answer.json()).newer;
      button.textContent = newer ? 'Newer version here: start over' : 'Start over';
    }

    async function startOver() {
      const panel = tracker.currentWidget;
      const { path } = panel.context;
      const { button: chosen } = await showDialog({
        title: 'Start over?',
        body: `${path} becomes what it was at first. What you have now is kept in work/kept.`,
        buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: 'Start over' })]
      });
      if (!chosen.accept) return;
      if (panel.context.model.dirty) await panel.context.save();
      const answer = await ask(services, 'distlab/copy', { path });
      if (answer.status !== 200) return;
      await panel.context.revert();
      panel.sessionContext.session?.kernel?.restart();
      look();
    }

    commands.addCommand('distlab:start-over', { label: 'Start Over', execute: startOver });
    button.onclick = startOver;
    shell.currentChanged.connect(look);
    return button;
  }

  /** Run a cell once its notebook has a kernel. JupyterLab alone clears a cell that is run before.
   *
   * It takes the place of JupyterLab's own plugin, which `page_config.json` leaves out.
   */
  function makeExecutor({ INotebookCellExecutor, runCell }) {
    const wait = context => Promise.race([
      context.ready, new Promise(resolve => setTimeout(resolve, MAX_KERNEL_WAIT_MS))]);
    const executor = {
      async runCell(options) {
        const { cell, sessionContext } = options;
        if (cell.model.type === 'code' && sessionContext && !sessionContext.isReady) {
          cell.setPrompt('*');
          await wait(sessionContext);
        }
        return runCell(options);
      }
    };
    return { id: 'distlab-home:executor', autoStart: true, provides: INotebookCellExecutor,
             activate: () => executor };
  }

  /** Show SVG outputs so that they follow the theme and say what they show.
   *
   * JupyterLab alone shows them as images without alt text, and those of others not at all. An
   * image runs no scripts; a picture with its own style sheet, which would reach the page, stays one.
   */
  function makePictures({ IRenderMimeRegistry }, { Widget }) {
    const type = 'image/svg+xml';
    class Picture extends Widget {
      async renderModel(model) {
        const source = String(model.data[type]);
        const root = new DOMParser().parseFromString(source, type).documentElement;
        if (model.trusted && root.localName === 'svg' && !root.querySelector('style')) {
          const figure = document.createElement('figure');
          figure.append(document.importNode(root, true));
          return this.node.replaceChildren(figure);
        }
        const image = new Image();
        image.alt = root.getAttribute('aria-label') || '';
        image.src = `data:${type},${encodeURIComponent(source)}`;
        this.node.replaceChildren(image);
      }
    }
    const makePicture = () => {
      const picture = new Picture();
      picture.addClass('jp-RenderedSVG');
      return picture;
    };
    const factory = { safe: true, mimeTypes: [type], createRenderer: makePicture };
    return { id: 'distlab-home:pictures', autoStart: true, requires: [IRenderMimeRegistry],
             activate: (_, registry) => registry.addFactory(factory, 0) };
  }

  async function makePlugins() {
    const names = ['@lumino/widgets', '@jupyterlab/services', '@jupyterlab/notebook',
                   '@jupyterlab/coreutils', '@jupyterlab/apputils', '@jupyterlab/rendermime',
                   '@jupyterlab/docmanager'];
    const [widgets, services, notebook, coreutils, apputils, rendermime, docmanager] =
      await Promise.all(names.map(load));
    const style = Object.assign(document.createElement('link'),
                                { rel: 'stylesheet', href: folder + 'home.css' });
    document.head.append(style);

    function activate(app, tracker, manager, palette) {
      openCopies(manager);
      let home;
      const open = (activate = true) => {
        if (!home || home.isDisposed) {
          home = makeHome(widgets, services, app.commands);
        }
        if (!home.isAttached) {
          const [first] = app.shell.widgets('main');
          const place = first ? { mode: 'tab-before', ref: first.id } : {};
          app.shell.add(home, 'main', { activate, ...place });
        } else if (activate) {
          app.shell.activateById(home.id);
        }
      };
      app.commands.addCommand('distlab:home', { label: 'Course Home', execute: () => open() });
      const over = makeStartOver(apputils, tracker, services, app);
      for (const command of palette ? ['distlab:home', 'distlab:start-over'] : []) {
        palette.addItem({ command, category: 'Course' });
      }

      const button = document.createElement('button');
      button.className = 'dl-top';
      button.textContent = 'Course home';
      button.onclick = () => open();
      const top = new widgets.Widget({ node: document.createElement('div') });
      top.id = 'distlab-top';
      top.node.append(over, button);
      app.shell.add(top, 'top', { rank: 900 });

      tellWhatRan(notebook, tracker, services);
      const named = coreutils.PageConfig.getOption('treePath');
      app.restored.then(() => {
        const isNew = ![...app.shell.widgets('main')].some((each) => each.context);
        if (isNew) app.shell.collapseLeft();  // the file browser: home has the course's files
        open(!named);
      });
    }

    const plugin = { id: 'distlab-home:plugin', autoStart: true, requires: [notebook.INotebookTracker, docmanager.IDocumentManager],
                     optional: [apputils.ICommandPalette], activate };
    return [plugin, makeExecutor(notebook), makePictures(rendermime, widgets)];
  }

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB['distlab-home'] = {
    init(scope) { shared = scope; },
    async get() {
      const plugins = await makePlugins();
      return () => ({ __esModule: true, default: plugins });
    }
  };
})();
