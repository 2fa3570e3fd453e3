"""Prefect's pages as a person uses them: signing in, filling in a deployment's form, answering a run that waits."""

from tests.people.browser import ENTER

FIELD = "(//label[starts-with(normalize-space(.), '{}')])[1]/following::textarea[1]"
TOGGLE = "(//label[starts-with(normalize-space(.), '{}')])[1]/following::*[contains(@class, 'p-toggle__control')][1]"
# The list that a phone shows; what Prefect draws over it elsewhere follows it.
CHOOSE = """
const label = [...document.querySelectorAll('label')].find(one => one.textContent.trim().startsWith(arguments[0]));
const list = document.evaluate('following::select[1]', label, null, 9).singleNodeValue;
const at = [...list.options].findIndex(one => one.textContent.trim() === arguments[1]);
list.selectedIndex = at;
list.dispatchEvent(new Event('change', {bubbles: true}));
return at >= 0;
"""


class Pages:
    """Signed in with the password that `up` says where to find."""

    def __init__(self, browser, url, password):
        self.browser, self.url = browser, url
        browser.go(url)
        browser.type("//input[@type='password']", password + ENTER)
        browser.find("//*[normalize-space(text())='Active Work Pools']")

    def start(self, deployment, shot, **given):
        """Fills in the form of a deployment and submits it; True is a switch to be set."""
        browser = self.browser
        browser.go(f"{self.url}/deployments")
        browser.click(f"//a[normalize-space()='{deployment}']")
        browser.find("//button[normalize-space()='Run']")
        identity = browser.ask("GET", "/url").split("/deployment/")[1].split("?")[0]
        browser.go(f"{self.url}/deployments/deployment/{identity}/run")
        for name, value in given.items():
            if value is True:
                browser.click(TOGGLE.format(name))
            else:
                browser.type(FIELD.format(name), value)
        browser.shot(shot)
        # The form stays where the click met a page drawn anew, or a busy server; a run that is made goes on to its own page.
        browser.press_until_gone("//button[@type='submit' and normalize-space()='Submit']", patience_seconds=60)

    def answer(self, flow_run, shot, **given):
        """Answers the question of a suspended run in its dialog, and says what the dialog showed."""
        browser = self.browser
        browser.go(f"{self.url}/runs/flow-run/{flow_run}")
        browser.click("//button[normalize-space()='Resume']")
        for label, value in given.items():
            name = label.replace("_", " ").title()
            if label == "decision":
                browser.find(f"//label[starts-with(normalize-space(.), '{name}')]")
                assert browser.run(CHOOSE, name, value), f"{name} does not offer {value}"
            else:
                browser.type(FIELD.format(name), value)
        browser.shot(shot)
        shown = browser.text()
        # The dialog stays, with a word in a corner, where Prefect does not take the answer: a busy database is enough.
        browser.press_until_gone("//button[normalize-space()='Submit']")
        return shown
